"""Reading, cleaning and its report: small byte strings with the answer beside them, and the real Multi30k."""

import gzip
import json
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mt.config import DataConfig, InvalidText
from mt.data import cleaning, text
from mt.data.cleaning import CleaningReport, clean, non_nfc, overlap
from mt.data.text import Bitext, count_pairs, read_lines, read_pairs
from mt.data.tokenizer import one_line
from mt.errors import UserError

CONFIG = DataConfig()
MULTI30K = Path(os.environ.get("MT_DATA", "absent")) / "multi30k"


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def paired(folder: Path, source: bytes, target: bytes) -> list[Bitext]:
    return [Bitext(write(folder / "a.en", source), write(folder / "a.de", target), ("en", "de"))]


def single(folder: Path, name: str, content: bytes) -> list[Bitext]:
    return [Bitext(write(folder / name, content), None, ("en", "de"))]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\xef\xbb\xbf", []),
        (b"\n", [""]),
        (b"a\n", ["a"]),
        (b"a", ["a"]),
        (b"a\n\n", ["a", ""]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\r\nb\rc\n", ["a\r", "b\rc"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"\xef\xbb\xbf\nb\n", ["", "b"]),
        (b"a\xe2\x80\xa8b\nc\x0bd\ne\xc2\x85f\n", ["a\u2028b", "c\x0bd", "e\x85f"]),
        (b"a\x00b\x0c\x1c\x1d\x1e\xe2\x80\xa9\n", ["a\x00b\x0c\x1c\x1d\x1e\u2029"]),
        (b" a \t\xc2\xa0\n", [" a \t\xa0"]),
        (b"<b>bold</b>\n", ["<b>bold</b>"]),
    ],
)
def test_lines_end_at_line_feeds_only(tmp_path: Path, content: bytes, lines: list[str]) -> None:
    assert list(read_lines(write(tmp_path / "plain", content))) == lines
    assert list(read_lines(write(tmp_path / "a.gz", gzip.compress(content)))) == lines
    assert list(read_lines(write(tmp_path / "a.xz", lzma.compress(content)))) == lines


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "a.en",
            b"\xef\xbb\xbfab\nc\xc3\xa4\x80d\n",
            ["line 2", "0x80", "offset 3 of the line", "9 of the file"],
        ),
        ("a.en", b"\xef\xbb\xbfa\x80", ["line 1", "offset 1 of the line, 4 of the file"]),
        ("a.en", b"\xff\xfea\x00", ["line 1", "0xff", "offset 0 of the line, 0 of the file", "invalid_utf8"]),
        ("a.sgm", b'<refset setid="x">\n', ["SGML"]),
        ("a.sgm", b'\xef\xbb\xbf<SRCSET setid="x">\n', ["SGML"]),
        ("a.sgm", b" <tstset>\n", ["SGML"]),
        ("a.xml", b"<?xml version='1.0'?>", ["SGML"]),
        ("a.xml", b"<mteval>", ["SGML"]),
        ("cut.gz", gzip.compress(os.urandom(5000))[:3000], ["damaged"]),
        ("crc.gz", gzip.compress(b"abc\n")[:-8] + bytes(8), ["damaged"]),
        ("not.gz", b"plain text", ["damaged"]),
        ("cut.xz", lzma.compress(os.urandom(5000))[:3000], ["damaged"]),
        ("not.xz", b"plain text", ["damaged"]),
    ],
)
def test_unreadable_files_are_named(tmp_path: Path, name: str, content: bytes, words: list[str]) -> None:
    path = write(tmp_path / name, content)
    with pytest.raises(UserError) as caught:
        # random bytes of a cut archive may fail as text first
        list(text._byte_lines(path)) if "cut" in name else list(read_lines(path))
    message = str(caught.value)
    assert all(word in message for word in [str(path), *words]), message
    assert "\n" not in message


def test_missing_file_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=str(tmp_path / "no.en")):
        list(read_lines("no.en"))
    with pytest.raises(UserError, match="cannot be read"):
        list(read_lines(tmp_path))


def test_reading_is_lazy(tmp_path: Path) -> None:
    lines = read_lines(write(tmp_path / "a", b"a\n" * 100_000 + b"\x80\n"))
    assert next(lines) == "a"
    with pytest.raises(UserError, match="line 100001 "):
        list(lines)


def test_the_locale_has_no_say(tmp_path: Path) -> None:
    path = write(tmp_path / "a", "ä\n".encode())
    program = "import sys; from mt.data.text import read_lines; print(ascii(list(read_lines(sys.argv[1]))))"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        env=environment,
        capture_output=True,
        check=True,
        text=True,
    )
    assert ran.stdout == "['\\xe4']\n"


@pytest.mark.parametrize(("source", "target"), [(50, 49), (49, 50), (0, 3), (5, 900)])
def test_unequal_counts_name_both_files_and_counts(tmp_path: Path, source: int, target: int) -> None:
    split = paired(tmp_path, b"a\n" * source, b"b\n" * target)
    for read in (count_pairs, lambda split: list(read_pairs(split))):
        with pytest.raises(UserError) as caught:
            read(split)
        assert f"{tmp_path / 'a.en'} has {source} lines" in str(caught.value)
        assert f"{tmp_path / 'a.de'} has {target} lines" in str(caught.value)


def test_line_separators_inside_lines_shift_nothing(tmp_path: Path) -> None:
    split = paired(tmp_path, b"a\xe2\x80\xa8b\nc\x0bd\ne\xc2\x85f\n", b"A\nB\nC\n")
    assert list(read_pairs(split)) == [("a\u2028b", "A"), ("c\x0bd", "B"), ("e\x85f", "C")]


def test_one_final_line_feed_less_is_no_difference(tmp_path: Path) -> None:
    split = paired(tmp_path, b"a\nb\n", b"A\nB")
    assert count_pairs(split) == 2
    assert [pair.where for pair in read_pairs(split)][1] == f"{tmp_path / 'a.en'} and a.de, line 2"


def test_windows_and_unix_files_are_the_same_pairs(tmp_path: Path) -> None:
    unix = list(read_pairs(paired(tmp_path, b"a\nb\n", b"A\nB\n")))
    assert list(read_pairs(paired(tmp_path, b"\xef\xbb\xbfa\r\nb\r\n", b"A\r\nB\r\n"))) == unix


def test_parts_come_in_the_order_given(tmp_path: Path) -> None:
    split = [*single(tmp_path, "b.tsv", b"1\teins\n"), *paired(tmp_path, b"2\n3\n", b"zwei\ndrei\n")]
    assert list(read_pairs(split)) == [("1", "eins"), ("2", "zwei"), ("3", "drei")]


def test_tsv_knows_no_quotes(tmp_path: Path) -> None:
    rows = b'First\tfirst\n"Second\tsecond\nThird "x"\tthird\r\nFourth\t\n'
    expected = [("First", "first"), ('"Second', "second"), ('Third "x"', "third"), ("Fourth", "")]
    assert list(read_pairs(single(tmp_path, "a.tsv", rows))) == expected
    assert list(read_pairs(single(tmp_path, "a.tsv.gz", gzip.compress(rows)))) == expected


@pytest.mark.parametrize(("row", "columns"), [(b"only", 1), (b"a\tb\tc", 3), (b"", 1)])
def test_tsv_with_other_columns_is_refused(tmp_path: Path, row: bytes, columns: int) -> None:
    with pytest.raises(UserError, match=rf"a\.tsv, line 2 has {columns} columns"):
        list(read_pairs(single(tmp_path, "a.tsv", b"a\tb\n" + row + b"\n")))


def test_jsonl_breaks_become_blanks(tmp_path: Path) -> None:
    rows = [
        {"en": "a\nb\tc\r\nd", "de": "ä\u2028", "id": 3},
        {"translation": {"de": "zwei", "en": "two"}},
    ]
    content = "\n".join(json.dumps(row) for row in rows).encode()
    assert list(read_pairs(single(tmp_path, "a.jsonl", content))) == [("a b c d", "ä\u2028"), ("two", "zwei")]


@pytest.mark.parametrize(
    "row",
    [
        b"{",
        b"[]",
        b"3",
        b"",
        b'{"en": "a"}',
        b'{"en": "a", "de": 3}',
        b'{"translation": ["a", "b"]}',
        b'{"en": "a", "de": null}',
        b"[" * 100_000,
        b'{"en": "a", "de": "\\ud800"}',
    ],
)
def test_jsonl_without_both_texts_is_refused(tmp_path: Path, row: bytes) -> None:
    with pytest.raises(UserError, match=r"a\.jsonl, line 2 "):
        list(read_pairs(single(tmp_path, "a.jsonl", b'{"en": "a", "de": "b"}\n' + row + b"\n")))


def test_invalid_utf8_stops_or_drops_the_pair(tmp_path: Path) -> None:
    split = paired(tmp_path, b"a\nb\x80\nc\nd\n", b"A\nB\nC\n\xffD\n")
    with pytest.raises(UserError, match="line 2 is not UTF-8"):
        count_pairs(split)
    report = CleaningReport()
    assert list(clean(read_pairs(split, InvalidText.skip, report), CONFIG, report)) == [
        ("a", "A"),
        ("c", "C"),
    ]
    assert (report.read, report.kept, report.dropped) == (4, 2, {"invalid UTF-8": 2})
    assert report.examples["invalid UTF-8"][1]["where"].endswith("a.de, line 4")


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
    assert list(clean(PAIRS, CONFIG, report)) == KEPT
    assert report.dropped == {
        "empty source": 1,
        "empty target": 1,
        "source longer than 4000 characters": 1,
        "target longer than 4000 characters": 1,
        "only one side has letters or digits": 2,
    }
    assert (report.read, report.kept) == (12, 6)
    # (...|!) is three times as long, not over it
    assert dict(report.notes) == {cleaning.IDENTICAL: 1, cleaning.UNEVEN: 1, cleaning.DUPLICATE: 1}


def test_pairs_after_a_dropped_one_stay_aligned(tmp_path: Path) -> None:
    target = b"".join(b"\n" if number == 7 else b"t%d\n" % number for number in range(1, 11))
    split = paired(tmp_path, b"".join(b"s%d\n" % number for number in range(1, 11)), target)
    report = CleaningReport()
    kept = list(clean(read_pairs(split), CONFIG, report))
    assert kept == [(f"s{number}", f"t{number}") for number in range(1, 11) if number != 7]
    assert "1 pair dropped: empty target" in report.lines()
    assert report.examples["empty target"][0]["where"].endswith("line 7")
    # what is read for development and testing goes through no cleaning
    assert list(read_pairs(split))[6] == ("s7", "")


def test_report_is_extended_by_later_stages() -> None:
    report = CleaningReport()
    list(clean(PAIRS, CONFIG, report))
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
    list(clean([("a", "b"), *[("", "b")] * 7], CONFIG, report))
    assert (report.dropped["empty source"], len(report.examples["empty source"])) == (7, 5)


def test_nothing_left_names_reasons_and_keys() -> None:
    with pytest.raises(UserError) as caught:
        list(clean([("word " * 5000, "Wort")] * 3, CONFIG, CleaningReport()))
    assert "3 source longer than 4000 characters" in str(caught.value)
    assert all(key in str(caught.value) for key in ("data.max_characters", "data.max_tokens", "data.max_ratio"))
    with pytest.raises(UserError, match="empty"):
        list(clean([], CONFIG, CleaningReport()))


def test_copied_lines_are_noted() -> None:
    pairs = [(f"line {number}", f"line {number}" if number < 30 else f"Zeile {number}") for number in range(100)]
    report = CleaningReport()
    assert len(list(clean(pairs, CONFIG, report))) == 100
    assert f"noted, not dropped: 30 {cleaning.IDENTICAL}" in report.lines()


def test_duplicates_are_counted_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "_MAX_HASHES", 10)
    report = CleaningReport()
    list(clean([("a", "b")] * 8 + [("c", "d")] * 8, CONFIG, report))
    assert report.notes[cleaning.DUPLICATE] == 8


def test_overlap_counts_test_pairs_that_occur_in_train(tmp_path: Path) -> None:
    test = [(f"s{number}", f"t{number}") for number in range(20)]
    train = [("s1", "other"), ("other", "t1"), ("t2", "s2"), *test[3:7], test[3]]
    assert overlap(train, [*test, test[3]]) == 5
    assert overlap(read_pairs(paired(tmp_path, b"s1\n", b"t1\n")), test) == 1
    assert overlap(test, []) == 0


def test_decomposed_references_are_counted() -> None:
    assert non_nfc(["Tür", "Tu\u0308r", "plain", "\u212b"]) == 2


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
