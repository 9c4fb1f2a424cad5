"""Selects the training pairs to keep, and reports those that are dropped or noted. No text is changed."""

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mt.config.schema import DataConfig
from mt.corpora.formats import Pair
from mt.errors import UserError

INVALID_UTF8 = "invalid UTF-8"
ONE_SIDED = "only one side has letters or digits"
HELD_OUT = "the same as a pair held out for development"
IDENTICAL = "pairs with source and target identical"
DUPLICATE = "pairs that repeat an earlier one"
UNEVEN = "pairs with one side over 3 times as long as the other, in characters"

_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
_UNEVEN_RATIO = 3
_MAX_HASHES = 5_000_000
_EXAMPLES = 5
_EXCERPT = 80


@dataclass
class CleaningReport:
    """Counts of pairs: read, dropped by reason, with examples, and noted but kept."""

    read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    notes: Counter[str] = field(default_factory=Counter)

    @property
    def kept(self) -> int:
        return self.read - self.dropped.total()

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "CleaningReport":
        """The report that `as_dict` turned into plain types."""
        return cls(plain["read"], Counter(plain["dropped"]), dict(plain["examples"]), Counter(plain["notes"]))

    def drop(self, reason: str, where: str, source: str, target: str) -> None:
        """Count a pair as dropped; the first few of each reason become examples."""
        self.dropped[reason] += 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < _EXAMPLES:
            examples.append({"where": where, "source": _excerpt(source), "target": _excerpt(target)})

    def check_kept(self, held_out: int = 0) -> None:
        """Raise UserError if no training pair is left besides those that are held out for development."""
        if self.read == 0:
            raise UserError("the training files are empty: data.train needs pairs of sentences")
        if self.kept <= held_out:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.most_common())
            way_out = "correct the files, or raise data.max_characters, data.max_tokens and data.max_ratio"
            raise UserError(f"none of the {self.read:,} training pairs is left ({reasons or 'too few'}): {way_out}")

    def lines(self) -> list[str]:
        """The report for the log: totals, then each reason with its examples, then the notes."""
        lines = [f"training pairs: {self.read:,} read, {self.kept:,} kept, {self.dropped.total():,} dropped"]
        for reason, count in self.dropped.most_common():
            lines.append(f"{count:,} {'pair' if count == 1 else 'pairs'} dropped: {reason}")
            for example in self.examples[reason]:
                lines.append(f"  {example['where']}: {example['source']!r} | {example['target']!r}")
        lines += [f"noted, not dropped: {count:,} {note}" for note, count in self.notes.items() if count]
        return lines

    def as_dict(self) -> dict[str, Any]:
        """For JSON: read, kept, dropped {reason: count}, examples {reason: [...]}, notes {note: count}."""
        return {"kept": self.kept, **vars(self)}


def _excerpt(text: str) -> str:
    printable = "".join(c if c.isprintable() else " " for c in text[:_EXCERPT])
    return printable + "…" if len(text) > _EXCERPT else printable


def clean(pairs: Iterable[Pair], config: DataConfig, report: CleaningReport) -> Iterator[Pair]:
    """Yield the training pairs to keep, unchanged; count all pairs in `report`. Raises UserError if none is left."""
    hashes = array("q")
    for pair in pairs:
        report.read += 1
        source, target = pair
        if reason := INVALID_UTF8 if not pair.valid else _fault(source, target, config.max_characters):
            report.drop(reason, pair.where, source, target)
            continue
        if source == target:
            report.notes[IDENTICAL] += 1
        short, long = sorted((len(source), len(target)))
        if long > _UNEVEN_RATIO * short:
            report.notes[UNEVEN] += 1
        if len(hashes) < _MAX_HASHES:
            hashes.append(hash((source, target)))
        yield pair
    # A set would take ten times the memory
    report.notes[DUPLICATE] += len(hashes) - len(np.unique(np.frombuffer(hashes, dtype=np.int64)))
    report.check_kept()


def _fault(source: str, target: str, max_characters: int) -> str | None:
    for side, text in (("source", source), ("target", target)):
        if not text.strip():
            return f"empty {side}"
    for side, text in (("source", source), ("target", target)):
        if len(text) > max_characters:
            return f"{side} longer than {max_characters} characters"
    if bool(_LETTER_OR_DIGIT.search(source)) != bool(_LETTER_OR_DIGIT.search(target)):
        return ONE_SIDED
    return None


def fault_in_tokens(source: int, target: int, config: DataConfig) -> str | None:
    """The reason to drop a pair with these token counts, or None."""
    if not source or not target:
        return "no tokens on one side"
    if max(source, target) > config.max_tokens:
        return f"more than {config.max_tokens} tokens on one side"
    if max(source, target) > config.max_ratio * min(source, target):
        return f"one side has more than {config.max_ratio:g} times as many tokens as the other"
    return None


def overlap(train_pairs: Iterable[tuple[str, str]], test_pairs: Iterable[tuple[str, str]]) -> int:
    """The number of test pairs that are also training pairs; only the test pairs are kept in memory."""
    wanted = Counter(map(hash, test_pairs))
    found = {number for number in map(hash, train_pairs) if number in wanted}
    return sum(wanted[number] for number in found)


def non_nfc(lines: Iterable[str]) -> int:
    """The number of lines that are not in Unicode's composed form NFC. Such references lower scores invisibly."""
    return sum(not unicodedata.is_normalized("NFC", line) for line in lines)
