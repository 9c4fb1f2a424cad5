"""Scores translations of raw text against raw references, and records both."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mt.config.stored import to_plain
from mt.corpora.formats import Bitext, Report, Sources, read_pairs
from mt.data.cleaning import non_nfc
from mt.decoding.translator import Translator
from mt.errors import UserError
from mt.evaluation.metrics import Scores, score
from mt.files import atomic_write
from mt.run_folder import RunFolder
from mt.runtime import distributed


@dataclass(frozen=True)
class EvaluationSet:
    """Raw sentences and their reference translations, never cleaned."""

    sources: list[str]
    references: list[str]
    file: str = ""  # of the sources, if given by the user

    @classmethod
    def read(cls, parts: Sequence[Bitext], file: str = "") -> "EvaluationSet":
        """Read some files. Raises UserError if they are invalid or empty."""
        pairs = list(read_pairs(parts))
        if not pairs:
            raise UserError(f"{parts[0].name if parts else 'the development set'} is empty: there is nothing to score")
        return cls([source for source, _ in pairs], [target for _, target in pairs], file)


def own_sets(sources: Sources, log: Report) -> dict[str, EvaluationSet]:
    """The development and test sets of a corpus by name. Those that cannot be read are left out with a warning."""
    dev = {"dev": lambda: sources.dev} if sources.dev else {}
    sets = {}
    for name, find in {**dev, **sources.find_tests}.items():
        try:
            sets[name] = EvaluationSet.read(find())
        except UserError as error:
            log(f"warning: {name} is not scored: {error}")
    return sets


def held_out_set(run: RunFolder | None) -> EvaluationSet | None:
    """The training pairs that a run held out for development, or None."""
    held_out = run is not None and all(path.exists() for path in run.held_out)
    return EvaluationSet.read([Bitext(*run.held_out, ("", ""))]) if run and held_out else None


def file_set(input: str, reference: str) -> EvaluationSet:
    """The pairs of two files that the user named."""
    source = Path(input).absolute()
    return EvaluationSet.read([Bitext(source, Path(reference).absolute(), ("", ""))], str(source))


def score_sets(
    translator: Translator,
    model: str,
    sets: Mapping[str, EvaluationSet],
    language: str,
    folder: Path | None,
    name: str,
    log: Report,
) -> dict[str, Scores]:
    """Translate and score each set, and write hypotheses and `name`.json to the folder, if there is one.

    All processes translate, but only rank 0 scores; the others return an empty dict.
    """
    scores = {}
    how = {"checkpoint": model, "decode": to_plain(translator.decode), "runtime": translator.runtime.describe()}
    for set_name, chosen in sets.items():
        best = [hypotheses[0] for hypotheses in translator.translate_nbest(chosen.sources)]
        if distributed.rank() > 0:
            continue
        texts = [hypothesis.text for hypothesis in best]
        found = scores[set_name] = score(texts, chosen.references, language)
        remarks = list(found.warnings)
        if longer := translator.too_long(chosen.sources):
            remarks.append(f"{longer} sources exceed the model's maximum length and are translated only in part")
        if cut := sum(hypothesis.at_limit for hypothesis in best):
            remarks.append(f"{cut} translations reached the length limit (decode.max_length_a, decode.max_length_b)")
        if odd := non_nfc(chosen.references):
            remarks.append(f"{odd} references are not in Unicode's NFC form, which may lower scores")
        if folder is not None:
            details = ({"input": chosen.file} if chosen.file else {}) | how
            try:
                _record(folder, name, set_name, language, texts, found, details)
            except (OSError, ValueError) as error:
                remarks.append(f"{folder / name}.json was not written: {error}")
        for remark in remarks:
            log(f"warning: {set_name}: {remark}")
    return scores


def _record(
    folder: Path, name: str, key: str, language: str, texts: list[str], found: Scores, details: Mapping[str, Any]
) -> None:
    """Write hypotheses, and add their scores to `name`.json. A digest distinguishes user files of the same name."""
    (folder / "hypotheses").mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    input = details.get("input", "")
    if record.get(key, {}).get("input", input) != input:
        key += f"-{hashlib.sha256(input.encode(errors='surrogateescape')).hexdigest()[:8]}"
    file = f"hypotheses/{name}.{key}.{language}"
    atomic_write(folder / file, "".join(text + "\n" for text in texts))
    record[key] = {**found.as_dict(), "hypotheses": file, **details}
    atomic_write(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
