"""`mt export`: convert a checkpoint to CTranslate2, and compare its translations with those of mt."""

import json
import shlex
import shutil
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from mt.config.compose import compose
from mt.config.overrides import Command
from mt.config.schema import DecodeConfig, ExportType, key
from mt.errors import UserError, explain_os_errors
from mt.files import atomic_folder, sha256_of
from mt.run_folder import CONFIG, EXPORT_META, WEIGHTS, find_checkpoint, run_of
from mt.runtime.process import say

if TYPE_CHECKING:
    from mt.checkpoint.folder import Checkpoint
    from mt.evaluation.scoring import EvaluationSet

CHECKED = 1000  # sentences of the development set that both engines translate
ENOUGH_FOR_BLEU = 200  # sentences: with fewer, a single one changes BLEU too much
# Largest differences allowed: the share of sentences whose greedy translations differ, and BLEU points
TOLERANCE = {ExportType.float32: (0.02, 0.5), ExportType.int8: (0.5, 1.0)}


@dataclass(frozen=True)
class ExportConfig:
    checkpoint: str = key("", "a checkpoint folder, or a run folder (uses its average or else its best checkpoint)")
    type: ExportType = key(ExportType.float32, "number format of the weights; int8 is a quarter of the size")
    output: str | None = key(None, "folder of the export (default: exports/ in the run folder)")
    input: str | None = key(None, "source file for comparing the engines (default: the run's development set)")
    reference: str | None = key(None, "file of reference translations of input")
    threads: int = key(0, "CPU threads; 0 is all cores", low=0)


def run(overrides: list[str]) -> int:
    """Export the checkpoint that the overrides name."""
    return export(compose(COMMAND, overrides))


def export(config: ExportConfig) -> int:
    """Convert, translate the same text with both engines, and reject an export that differs too much."""
    from mt.checkpoint.folder import Checkpoint
    from mt.decoding.exported import is_export

    if not find_spec("ctranslate2"):
        raise UserError("mt export needs CTranslate2: pip install ctranslate2")
    checkpoint = Checkpoint.open(find_checkpoint(config.checkpoint))
    run = run_of(checkpoint.folder)
    exports = run.exports if run else checkpoint.folder.parent / "exports"
    name = f"{checkpoint.folder.name}-ctranslate2-{config.type.value}"
    folder = Path(config.output).absolute() if config.output else exports / name
    if folder.exists() and not is_export(folder) and any(folder.iterdir()):
        raise UserError(f"output={folder} is not an export: choose another folder")
    chosen = _check_set(config, checkpoint)
    with explain_os_errors(f"cannot write {folder}"), atomic_folder(folder) as unfinished:
        _write(checkpoint, config, unfinished)
        say(_compare(checkpoint, config, chosen, unfinished))
    say(f"translate with it: mt translate {shlex.quote(f'checkpoint={folder}')} < in > out")
    print(folder)
    return 0


def _check_set(config: ExportConfig, checkpoint: "Checkpoint") -> "EvaluationSet":
    """The text that both engines translate: the user's files, or the run's development set."""
    from mt.corpora.locate import locate
    from mt.evaluation.scoring import EvaluationSet, file_set, held_out_set

    if config.input and config.reference:
        return file_set(config.input, config.reference)
    if held_out := held_out_set(run_of(checkpoint.folder)):
        return held_out
    try:
        if parts := locate(checkpoint.config.data, say, training=False).dev:
            return EvaluationSet.read(parts)
    except UserError as error:
        raise UserError(f"{error}; or give input= and reference= for the check") from error
    raise UserError("the run has no development set here: give input= and reference= for the check")


def _write(checkpoint: "Checkpoint", config: ExportConfig, folder: Path) -> None:
    """Write the files needed for translation, and their hashes."""
    from mt.decoding.conversion import convert
    from mt.decoding.exported import EXPORT_FORMAT

    tokenizers = checkpoint.load_tokenizers()
    positions = convert(checkpoint, tokenizers, config.type, folder)
    tokenizers.save(folder)
    shutil.copy(checkpoint.folder / CONFIG, folder)
    meta = {
        "checkpoint": checkpoint.folder.name,
        "format": EXPORT_FORMAT,
        "weights": checkpoint.meta["hashes"][WEIGHTS],
        "type": config.type.value,
        "positions": positions,
        "hashes": {path.name: sha256_of(path) for path in sorted(folder.iterdir())},
    }
    (folder / EXPORT_META).write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")


def _compare(checkpoint: "Checkpoint", config: ExportConfig, chosen: "EvaluationSet", folder: Path) -> str:
    """Describe the differences between the two engines. Raises UserError if they are too large."""
    from mt.evaluation.metrics import bleu

    lines, references = chosen.sources[:CHECKED], chosen.references[:CHECKED]
    decode, language = checkpoint.config.decode, checkpoint.config.data.target
    scores, shares = [], []
    for options in (replace(decode, beam_size=1, nbest=1), replace(decode, nbest=1)):
        one, other = _translate(checkpoint, folder, options, lines, config.threads)
        shares.append(sum(a != b for a, b in zip(one, other, strict=True)) / len(lines))
        scores.append((bleu(one, references, language), bleu(other, references, language)))
    share, difference = shares[0], abs(scores[1][0] - scores[1][1])
    text = (
        f"{config.type.value}, {len(lines)} sentences: {share:.1%} differ with greedy search, {shares[1]:.1%} with beam"
        f" {decode.beam_size}; BLEU {scores[1][0]:.2f} with mt, {scores[1][1]:.2f} with CTranslate2"
    )
    most, farthest = TOLERANCE[config.type]
    if share * len(lines) > max(1, most * len(lines)) or (len(lines) >= ENOUGH_FOR_BLEU and difference > farthest):
        other_way = "type=float32" if config.type is ExportType.int8 else "a later checkpoint, or input= and reference="
        limits = f"at most {most:.0%} of greedy translations may differ, and BLEU by at most {farthest}"
        raise UserError(f"the export is rejected ({text}): {limits}: try {other_way}")
    return text


def _translate(
    checkpoint: "Checkpoint", folder: Path, options: DecodeConfig, lines: list[str], threads: int
) -> tuple[list[str], list[str]]:
    from mt.config.schema import Device, Precision
    from mt.decoding.exported import ExportedTranslator
    from mt.decoding.translator import Translator
    from mt.runtime.device import start_runtime

    one = Translator.of(checkpoint, options, start_runtime(Device.cpu, Precision.fp32, threads))
    other = ExportedTranslator.load(folder, options, threads)
    return one.translate(lines), [found[0].text for found in other.translate_nbest(lines)]


COMMAND = Command(
    name="export",
    help="convert a checkpoint to CTranslate2, and compare its translations with mt's",
    config=ExportConfig,
    run=run,
    examples=(
        ("for faster translation on a CPU", "mt export checkpoint=outputs/multi30k-en-de"),
        ("four times smaller", "mt export checkpoint=outputs/multi30k-en-de type=int8"),
    ),
)
