"""Scores that can be trusted: real translations of raw text against raw references, written down with them."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mt.checkpoint import Checkpoint
from mt.checkpoint_store import CheckpointStore
from mt.config import DataConfig, DecodeConfig, EvaluateJob, Precision
from mt.data.cleaning import non_nfc
from mt.data.sources import Sources, locate
from mt.data.text import read_lines, read_pairs, uncompressed_suffix
from mt.decoding.translator import Translator
from mt.errors import UserError
from mt.evaluation.metrics import Scores, check_language, score, table
from mt.jobs import to_plain
from mt.runtime import distributed
from mt.runtime.device import start
from mt.runtime.files import write_whole

Log = Callable[[str], None]


@dataclass(frozen=True)
class EvaluationSet:
    """Raw sentences and their reference translations, never cleaned."""

    sources: list[str]
    references: list[str]
    file: str = ""  # of the sources, where the user named it


def own_test_sets(sources: Sources, log: Log) -> dict[str, EvaluationSet]:
    """The corpus's development and test sets, by name; those that are not to be had are told and left out."""
    dev = {"dev": lambda: sources.dev} if sources.dev else {}
    sets = {}
    for name, find in {**dev, **sources.find_tests}.items():
        try:
            pairs = list(read_pairs(find()))
        except UserError as error:
            log(f"warning: {name} is not scored: {error}")
            continue
        if pairs:
            sets[name] = EvaluationSet([source for source, _ in pairs], [target for _, target in pairs])
        else:
            log(f"warning: {name} is not scored: it is empty")
    return sets


def held_out_files(run: Path) -> tuple[Path, Path]:
    """Where a run keeps source and target of the part that it held out, having no development files."""
    return run / "held_out.source.txt", run / "held_out.target.txt"


def file_test_set(input: str | Path, reference: str | Path) -> EvaluationSet:
    """A user's own pair of files; the counts are checked."""
    sources, references = list(read_lines(input)), list(read_lines(reference))
    if len(sources) != len(references):
        raise UserError(
            f"input={input} has {len(sources)} lines, reference={reference} has {len(references)}: they must be"
            " line by line translations of each other"
        )
    if not sources:
        raise UserError(f"input={input} is empty: there is nothing to score")
    return EvaluationSet(sources, references, str(Path(input).absolute()))


def score_sets(
    translator: Translator,
    model: str,
    sets: Mapping[str, EvaluationSet],
    language: str,
    folder: Path | None,
    name: str,
    log: Log,
) -> dict[str, Scores]:
    """Translate and score each set; hypotheses and `name`.json go to the folder, where there is one.

    `model` is what the record calls the model: its checkpoint's name. Several processes translate together, and
    rank 0 alone scores: the others get nothing.
    """
    scores, texts = {}, {}
    for set_name, chosen in sets.items():
        best = [hypotheses[0] for hypotheses in translator.translate_nbest(chosen.sources)]
        if distributed.rank() > 0:
            continue
        texts[set_name] = [hypothesis.text for hypothesis in best]
        scores[set_name] = score(texts[set_name], chosen.references, language)
        remarks = list(scores[set_name].warnings)
        if longer := translator.too_long(chosen.sources):
            remarks.append(f"{longer} sources are longer than the model's positions: their ends are not translated")
        if cut := sum(hypothesis.at_limit for hypothesis in best):
            remarks.append(f"{cut} translations reached the length limit (decode.max_length_a, decode.max_length_b)")
        if odd := non_nfc(chosen.references):
            remarks.append(f"{odd} references are not in Unicode's NFC form: they may cost score invisibly")
        for remark in remarks:
            log(f"warning: {set_name}: {remark}")
    if folder is not None and scores:
        runtime = translator.runtime.describe()
        how = {"checkpoint": model, "decode": to_plain(translator.decode), "runtime": runtime}
        files = {set_name: chosen.file for set_name, chosen in sets.items()}
        try:
            _record(folder, name, language, scores, texts, files, how)
        except (OSError, ValueError) as error:
            log(f"warning: {folder / name}.json is not written: {error}")
    return scores


def evaluate_command(job: EvaluateJob) -> None:
    """`mt evaluate`: a table of scores on the terminal, scores and hypotheses in the run folder."""
    if (job.input is None) != (job.reference is None):
        raise UserError("input= and reference= go together: give both, or neither for the run's own test sets")
    start(job.device, job.precision, job.threads, together=True)
    folders = distributed.on_leader(lambda: _folders(job))
    data = Checkpoint.open(folders[0]).config.data
    check_language(data.target)
    sets = distributed.on_leader(lambda: _sets(job, Path(folders[0]).parent.parent, data))
    for path in folders:
        translator = Translator.load(path, job.decode, job.device, job.precision, job.threads)
        folder, name = _place(job, Path(path), Checkpoint.open(path).config.decode)
        distributed.say(f"{path}, beam {job.decode.beam_size}, {translator.runtime.describe()}")
        model = Path(path).name
        if scores := score_sets(translator, model, sets, data.target, folder, name, distributed.say):
            print(table(scores), flush=True)


def _sets(job: EvaluateJob, run: Path, data: DataConfig) -> dict[str, EvaluationSet]:
    if job.input is not None and job.reference is not None:
        path = Path(job.input)
        return {path.stem.removesuffix(uncompressed_suffix(path)): file_test_set(job.input, job.reference)}
    sets = own_test_sets(locate(data, distributed.say, training=False), distributed.say)
    held_out = held_out_files(run)
    if not sets and all(path.exists() for path in held_out):
        sets = {"dev": replace(file_test_set(*held_out), file="")}
    if not sets:
        raise UserError("the run has no test sets of its own: give input=FILE reference=FILE")
    return sets


def _folders(job: EvaluateJob) -> list[str]:
    """The checkpoint folders to score."""
    if not job.all_checkpoints:
        return [str(Checkpoint.open(job.checkpoint).folder)]
    store = CheckpointStore(Path(job.checkpoint).absolute() / "checkpoints")
    if not store.names():
        raise UserError(f"all_checkpoints=true needs a run folder, checkpoint={job.checkpoint} has no checkpoints")
    return [str(store.folder / name) for name in store.names()]


def _place(job: EvaluateJob, checkpoint: Path, own_options: DecodeConfig) -> tuple[Path | None, str]:
    """Folder and name of the scores: "scores" are the run's own, of its own sets; others say what is different.

    A checkpoint outside a run has no folder for them, unless output= names one.
    """
    store = checkpoint.parent
    run = store.parent if store.name == "checkpoints" else None
    of_run = Path(job.checkpoint).absolute() == run and not job.all_checkpoints
    name = "scores" if of_run else f"scores-{checkpoint.name}"
    # These two change no score
    options = replace(job.decode, batch_tokens=own_options.batch_tokens, engine=own_options.engine)
    if options != own_options or job.precision is not Precision.fp32:
        name += "-other_options"
    if job.input is not None:
        name += "-files"
    return Path(job.output) if job.output else run, name


def _record(
    folder: Path,
    name: str,
    language: str,
    scores: Mapping[str, Scores],
    texts: Mapping[str, list[str]],
    files: Mapping[str, str],
    how: Mapping[str, Any],
) -> None:
    """Hypotheses to folder/hypotheses; scores into folder/`name`.json, beside those of other sets.

    Where a file of the same name in another folder was scored before, a digest of the path tells them apart.
    """
    (folder / "hypotheses").mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for set_name, found in scores.items():
        input = files[set_name]
        key = set_name
        if record.get(key, {}).get("input", input) != input:
            key += f"-{hashlib.sha256(input.encode(errors='surrogateescape')).hexdigest()[:8]}"
        file = f"hypotheses/{name}.{key}.{language}"
        write_whole(folder / file, "".join(text + "\n" for text in texts[set_name]))
        record[key] = {**found.as_dict(), "hypotheses": file, **({"input": input} if input else {}), **how}
    write_whole(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
