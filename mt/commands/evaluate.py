"""`mt evaluate`: score a run or a checkpoint on its own test sets, or on your files."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mt.config.compose import compose
from mt.config.overrides import Command, Inherited
from mt.config.schema import DecodeConfig, DecodingConfig, Precision, key
from mt.corpora.formats import uncompressed_suffix
from mt.errors import UserError
from mt.run_folder import RunFolder, find_checkpoint, run_of
from mt.runtime.process import say


@dataclass(frozen=True)
class EvaluateConfig(DecodingConfig):
    input: str | None = key(None, "source file to score on (default: the run's own test sets)")
    reference: str | None = key(None, "file of reference translations of input")
    output: str | None = key(None, "folder for scores and hypotheses (default: the run folder)")
    all_checkpoints: bool = key(False, "score every checkpoint that training saved (not the average)")


def run(overrides: list[str]) -> int:
    """Evaluate in as many processes as `devices` says."""
    from mt.runtime.launcher import run_in_processes

    config: EvaluateConfig = compose(COMMAND, overrides)
    code = run_in_processes([COMMAND.name, *overrides], config.devices, config.device)
    return evaluate(config) if code is None else code


def evaluate(config: EvaluateConfig) -> int:
    """Print a table of scores, and write scores and hypotheses to `output` or the run folder."""
    from mt.checkpoint.folder import Checkpoint
    from mt.corpora.locate import locate
    from mt.decoding.translator import Translator
    from mt.evaluation.metrics import bleu_metric, table
    from mt.evaluation.scoring import file_set, held_out_set, own_sets, score_sets
    from mt.runtime import distributed
    from mt.runtime.device import start_runtime

    runtime = start_runtime(config.device, config.precision, config.threads, together=True)
    folders = distributed.broadcast(lambda: _checkpoints(config))
    data = Checkpoint.open(folders[0]).config.data
    bleu_metric(data.target)  # fails early if a package is missing

    def find_sets() -> dict[str, Any]:
        if config.input and config.reference:
            path = Path(config.input)
            return {path.stem.removesuffix(uncompressed_suffix(path)): file_set(config.input, config.reference)}
        sets = own_sets(locate(data, say, training=False), say)
        if not sets and (held_out := held_out_set(run_of(folders[0]))):
            sets = {"dev": held_out}
        if not sets:
            raise UserError("the run has no test sets of its own: give input=FILE reference=FILE")
        return sets

    sets = distributed.broadcast(find_sets)
    for folder in folders:
        checkpoint = Checkpoint.open(folder)
        translator = Translator.of(checkpoint, config.decode, runtime)
        say(f"{folder}, beam {config.decode.beam_size}, {runtime.describe()}")
        place, name = _place(config, folder, checkpoint.config.decode)
        if scores := score_sets(translator, folder.name, sets, data.target, place, name, say):
            print(table(scores), flush=True)
    return 0


def _checkpoints(config: EvaluateConfig) -> list[Path]:
    if not config.all_checkpoints:
        return [find_checkpoint(config.checkpoint)]
    from mt.checkpoint.store import CheckpointStore

    store = CheckpointStore(RunFolder(Path(config.checkpoint).absolute()))
    if not store.names():
        raise UserError(f"all_checkpoints=true needs a run folder; checkpoint={config.checkpoint} has no checkpoints")
    return [store.folder / name for name in store.names()]


def _place(config: EvaluateConfig, checkpoint: Path, own_options: DecodeConfig) -> tuple[Path | None, str]:
    """Folder and name of the scores: "scores" for the run's own settings; other names say what differs."""
    run = run_of(checkpoint)
    of_run = run is not None and Path(config.checkpoint).absolute() == run.path and not config.all_checkpoints
    name = "scores" if of_run else f"scores-{checkpoint.name}"
    options = replace(config.decode, batch_tokens=own_options.batch_tokens)  # batch_tokens changes no score
    if options != own_options or config.precision is not Precision.fp32:
        name += "-other_options"
    if config.input is not None:
        name += "-files"
    return Path(config.output) if config.output else run.path if run else None, name


COMMAND = Command(
    name="evaluate",
    help="score a run or a checkpoint: BLEU, chrF2, TER",
    config=EvaluateConfig,
    run=run,
    groups=("decode",),
    inherited=Inherited("checkpoint", sections=("decode",)),
    examples=(
        ("the run's own test sets", "mt evaluate checkpoint=outputs/multi30k-en-de"),
        ("your own files", "mt evaluate checkpoint=outputs/multi30k-en-de input=x.en reference=x.de"),
    ),
)
