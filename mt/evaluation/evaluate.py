"""Scores that can be trusted: real translations of raw text against raw references, written down with them."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mt.checkpoint import Checkpoint, CheckpointStore
from mt.config import EvaluateJob
from mt.data.cleaning import non_nfc
from mt.data.download import DataUnavailable
from mt.data.sources import Sources, locate
from mt.data.text import read_lines, read_pairs
from mt.decoding.translator import Translator
from mt.errors import UserError
from mt.evaluation.metrics import Scores, check_language, score, table

Log = Callable[[str], None]


@dataclass(frozen=True)
class TestSet:
    """Raw sentences and their reference translations, never cleaned."""

    __test__ = False  # no test class for pytest

    sources: list[str]
    references: list[str]


def own_test_sets(sources: Sources, log: Log) -> dict[str, TestSet]:
    """The corpus's development and test sets, by name; those that are not to be had are told and left out."""
    try:
        splits = {"dev": sources.dev, **sources.tests}
    except DataUnavailable as error:
        log(f"warning: the test sets are missing: {error}")
        splits = {"dev": sources.dev}
    pairs = {name: list(read_pairs(split)) for name, split in splits.items() if split}
    return {name: TestSet([s for s, _ in split], [t for _, t in split]) for name, split in pairs.items()}


def file_test_set(input: str, reference: str) -> TestSet:
    """A user's own pair of files; the counts are checked."""
    sources, references = list(read_lines(input)), list(read_lines(reference))
    if len(sources) != len(references):
        raise UserError(
            f"input={input} has {len(sources)} lines, reference={reference} has {len(references)}: they must be"
            " line by line translations of each other"
        )
    if not sources:
        raise UserError(f"input={input} is empty: there is nothing to score")
    return TestSet(sources, references)


def score_sets(
    translator: Translator, sets: Mapping[str, TestSet], language: str, folder: Path, name: str, log: Log
) -> dict[str, Scores]:
    """Translate and score each set; hypotheses go to folder/hypotheses, the scores to folder/`name`.json."""
    scores = {}
    for set_name, test_set in sets.items():
        hypotheses = [found[0] for found in translator.translate_nbest(test_set.sources)]
        if cut := sum(found.at_limit for found in hypotheses):
            log(f"warning: {set_name}: {cut} translations reached the length limit (decode.max_length_a and _b)")
        if odd := non_nfc(test_set.references):
            log(f"warning: {set_name}: {odd} references are not in Unicode's NFC form: they may cost score invisibly")
        texts = [found.text for found in hypotheses]
        scores[set_name] = score(texts, test_set.references, language)
        for warning in scores[set_name].warnings:
            log(f"warning: {set_name}: {warning}")
        _write(
            folder / "hypotheses" / f"{name}.{set_name}.{language}",
            "".join(text + "\n" for text in texts),
            log,
        )
    _merge(
        folder / f"{name}.json",
        {key: _as_json(value, name, key, language) for key, value in scores.items()},
        log,
    )
    return scores


def evaluate_command(job: EvaluateJob) -> None:
    """`mt evaluate`: a table of scores on the terminal, scores and hypotheses in the run folder."""
    if (job.input is None) != (job.reference is None):
        raise UserError("input= and reference= go together: give both, or neither for the run's own test sets")
    checkpoints = _checkpoints(job)
    data = checkpoints[0].config.data
    check_language(data.target)
    if job.input is not None and job.reference is not None:
        sets = {Path(job.input).name.split(".")[0]: file_test_set(job.input, job.reference)}
    else:
        sets = own_test_sets(locate(data, _say), _say)
        if not sets:
            raise UserError("the run has no test sets of its own: give input=FILE reference=FILE")
    for checkpoint in checkpoints:
        translator = Translator.load(checkpoint.folder, job.decode, job.device, job.precision, job.threads)
        folder, name = _place(job, checkpoint)
        _say(f"{checkpoint.folder}, beam {job.decode.beam_size}, {translator.runtime.describe()}")
        print(table(score_sets(translator, sets, data.target, folder, name, _say)), flush=True)


def _checkpoints(job: EvaluateJob) -> list[Checkpoint]:
    if not job.all_checkpoints:
        return [Checkpoint.open(job.checkpoint)]
    store = CheckpointStore(Path(job.checkpoint) / "checkpoints")
    if not store.names():
        raise UserError(f"all_checkpoints=true needs a run folder, checkpoint={job.checkpoint} has no checkpoints")
    return [Checkpoint.open(store.folder / name) for name in store.names()]


def _place(job: EvaluateJob, checkpoint: Checkpoint) -> tuple[Path, str]:
    """Folder and name of the scores: "scores" are those of the run itself, others carry the checkpoint's name."""
    run = checkpoint.folder.parent.parent
    of_run = Path(job.checkpoint).absolute() == run and not job.all_checkpoints
    name = "scores" if of_run else f"scores-{checkpoint.folder.name}"
    return Path(job.output) if job.output else run, name


def _as_json(scores: Scores, name: str, set_name: str, language: str) -> dict[str, Any]:
    return {**scores.as_dict(), "hypotheses": f"hypotheses/{name}.{set_name}.{language}"}


def _merge(path: Path, scores: dict[str, Any], log: Log) -> None:
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = {}
    _write(path, json.dumps(before | scores, indent=1, ensure_ascii=False) + "\n", log)


def _write(path: Path, text: str, log: Log) -> None:
    """Whole or not at all. A folder that can't be written to is told: the scores on the terminal remain."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, encoding="utf-8", newline="\n")
        os.replace(temporary, path)
    except OSError as error:
        log(f"warning: {path} is not written: {error.strerror}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
