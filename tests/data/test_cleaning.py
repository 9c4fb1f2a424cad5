"""Cleaning and its report, on small examples and on the real Multi30k."""

import gzip
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from corpora_support import paired

from mt.config.schema import DataConfig
from mt.corpora.formats import Bitext, Pair, count_pairs, read_pairs
from mt.data import cleaning
from mt.data.cleaning import CleaningReport, clean, fault_in_tokens, non_nfc, overlap
from mt.errors import UserError
from mt.tokenizers.tokenizer import one_line

CONFIG = DataConfig()
MULTI30K = Path(os.environ.get("MT_DATA", "absent")) / "multi30k"


def numbered(texts: Iterable[tuple[str, str]]) -> Iterator[Pair]:
    """Pairs as if they were read from one file."""
    for line, text in enumerate(texts, 1):
        pair = Pair(text)
        pair.part, pair.line, pair.valid = Bitext(Path("x.tsv"), None, ("en", "de")), line, True
        yield pair


def test_pairs_that_are_not_utf8_are_dropped_and_counted(tmp_path: Path) -> None:
    split = paired(tmp_path, b"a\nb\x80\nc\nd\n", b"A\nB\nC\n\xffD\n")
    report = CleaningReport()
    assert list(clean(read_pairs(split, keep_invalid=True), CONFIG, report)) == [("a", "A"), ("c", "C")]
    assert (report.read, report.kept, report.dropped) == (4, 2, {"invalid UTF-8": 2})
    assert report.examples["invalid UTF-8"][1]["where"].endswith("a.de, line 4")
    assert report.examples["invalid UTF-8"][1]["target"] == "\ufffdD"


PAIRS = [
    ("one", "eins"),
    ("", "leer"),
    ("empty", " \xa0\u2028"),
    ("x" * 4001, "lang"),
    ("long", "y" * 4001),
    ("words", "@@"),
    ("...", "Wort"),
    ("...", "!"),
    ("same", "same"),
    ("one", "eins"),
    (" kept as it is \x00\u2028", "bleibt\x0b, wie es ist "),
    ("tiny", "viel mehr als nur ein einziges Wort"),
]
KEPT = [PAIRS[number] for number in (0, 7, 8, 9, 10, 11)]


def test_cleaning_drops_whole_pairs_and_counts_each_reason() -> None:
    report = CleaningReport()
    assert list(clean(numbered(PAIRS), CONFIG, report)) == KEPT
    assert report.dropped == {
        "empty source": 1,
        "empty target": 1,
        "source longer than 4000 characters": 1,
        "target longer than 4000 characters": 1,
        "only one side has letters or digits": 2,
    }
    assert (report.read, report.kept) == (12, 6)
    # ("...", "!") has exactly three times the length, which is not too uneven
    assert dict(report.notes) == {cleaning.IDENTICAL: 1, cleaning.UNEVEN: 1, cleaning.DUPLICATE: 1}


def test_pairs_after_a_dropped_one_stay_aligned(tmp_path: Path) -> None:
    target = b"".join(b"\n" if number == 7 else b"t%d\n" % number for number in range(1, 11))
    split = paired(tmp_path, b"".join(b"s%d\n" % number for number in range(1, 11)), target)
    report = CleaningReport()
    kept = list(clean(read_pairs(split), CONFIG, report))
    assert kept == [(f"s{number}", f"t{number}") for number in range(1, 11) if number != 7]
    assert "1 pair dropped: empty target" in report.lines()
    assert report.examples["empty target"][0]["where"].endswith("line 7")
    # development and test sets are not cleaned
    assert list(read_pairs(split))[6] == ("s7", "")


def test_report_is_extended_by_later_stages() -> None:
    report = CleaningReport()
    list(clean(numbered(PAIRS), CONFIG, report))
    report.drop("more than 256 tokens", "x.en, line 3", "a\u2028b\x1b" + "c" * 100, "d")
    assert report.kept == 5
    lines = report.lines()
    assert lines[0] == "training pairs: 12 read, 5 kept, 7 dropped"
    assert f"  x.en, line 3: 'a b {'c' * 76}…' | 'd'" in lines
    assert all(line == one_line(line) for line in lines)
    loaded = json.loads(json.dumps(report.as_dict()))
    assert (loaded["kept"], loaded["dropped"]["more than 256 tokens"]) == (5, 1)


def test_report_holds_at_most_five_examples() -> None:
    report = CleaningReport()
    list(clean(numbered([("a", "b"), *[("", "b")] * 7]), CONFIG, report))
    assert (report.dropped["empty source"], len(report.examples["empty source"])) == (7, 5)


def test_nothing_left_names_reasons_and_keys() -> None:
    with pytest.raises(UserError) as caught:
        list(clean(numbered([("word " * 5000, "Wort")] * 3), CONFIG, CleaningReport()))
    assert "3 source longer than 4000 characters" in str(caught.value)
    assert all(key in str(caught.value) for key in ("data.max_characters", "data.max_tokens", "data.max_ratio"))
    with pytest.raises(UserError, match="empty"):
        list(clean([], CONFIG, CleaningReport()))


def test_copied_lines_are_noted() -> None:
    pairs = [(f"line {number}", f"line {number}" if number < 30 else f"Zeile {number}") for number in range(100)]
    report = CleaningReport()
    assert len(list(clean(numbered(pairs), CONFIG, report))) == 100
    assert f"noted, not dropped: 30 {cleaning.IDENTICAL}" in report.lines()


def test_duplicates_are_counted_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "_MAX_HASHES", 10)
    report = CleaningReport()
    list(clean(numbered([("a", "b")] * 8 + [("c", "d")] * 8), CONFIG, report))
    assert report.notes[cleaning.DUPLICATE] == 8


def test_overlap_counts_test_pairs_that_occur_in_train(tmp_path: Path) -> None:
    test = [(f"s{number}", f"t{number}") for number in range(20)]
    train = [("s1", "other"), ("other", "t1"), ("t2", "s2"), *test[3:7], test[3]]
    assert overlap(train, [*test, test[3]]) == 5
    assert overlap(read_pairs(paired(tmp_path, b"s1\n", b"t1\n")), test) == 1
    assert overlap(test, []) == 0


def test_decomposed_references_are_counted() -> None:
    assert non_nfc(["Tür", "Tu\u0308r", "plain", "\u212b"]) == 2


@pytest.mark.parametrize(
    ("source", "target", "fault"),
    [
        (3, 9, None),
        (100, 12, None),
        (0, 3, "no tokens on one side"),
        (3, 0, "no tokens on one side"),
        (101, 50, "more than 100 tokens on one side"),
        (50, 101, "more than 100 tokens on one side"),
        (28, 3, "one side has more than 9 times as many tokens as the other"),
        (3, 28, "one side has more than 9 times as many tokens as the other"),
        (27, 3, None),
    ],
)
def test_faults_in_numbers_of_tokens(source: int, target: int, fault: str | None) -> None:
    assert fault_in_tokens(source, target, DataConfig(max_tokens=100, max_ratio=9.0)) == fault


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="MT_DATA with multi30k is not there")
def test_multi30k_loses_its_two_broken_lines_and_nothing_else() -> None:
    def split(name: str) -> list[Bitext]:
        return [Bitext(MULTI30K / f"{name}.en.gz", MULTI30K / f"{name}.de.gz", ("en", "de"))]

    report = CleaningReport()
    with gzip.open(MULTI30K / "train.de.gz") as stream:
        raw = stream.read().decode().split("\n")[:-1]
    kept = [pair[1] for pair in clean(read_pairs(split("train")), CONFIG, report)]
    assert kept == [line for line in raw if line != "@@"]
    assert (report.read, report.kept) == (29_000, 28_998)
    assert report.dropped == {"only one side has letters or digits": 2}
    named = report.examples["only one side has letters or digits"]
    assert [(example["where"].rsplit(" ")[-1], example["target"]) for example in named] == [
        ("16510", "@@"),
        ("16664", "@@"),
    ]
    assert count_pairs(split("val")) == 1014
    assert count_pairs(split("test_2016_flickr")) == 1000
