"""Reading pairs of lines from small files."""

import gzip
import json
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest
from corpora_support import paired, write

from mt.corpora import formats
from mt.corpora.formats import Bitext, count_pairs, read_lines, read_pairs
from mt.errors import UserError


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
        # the random bytes of a cut archive may fail as UTF-8 first
        list(formats._byte_lines(path)) if "cut" in name else list(read_lines(path))
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
    program = "import sys; from mt.corpora.formats import read_lines; print(ascii(list(read_lines(sys.argv[1]))))"
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


def test_invalid_utf8_stops_or_is_marked(tmp_path: Path) -> None:
    split = paired(tmp_path, b"a\nb\x80\nc\nd\n", b"A\nB\nC\n\xffD\n")
    for read in (count_pairs, lambda split: list(read_pairs(split))):
        with pytest.raises(UserError, match="line 2 is not UTF-8"):
            read(split)
    assert count_pairs(split, keep_invalid=True) == 2
    pairs = list(read_pairs(split, keep_invalid=True))
    assert pairs == [("a", "A"), ("b\ufffd", "B"), ("c", "C"), ("d", "\ufffdD")]
    assert [pair.valid for pair in pairs] == [True, False, True, False]
    assert [pair.where.rsplit(", ")[-1] for pair in pairs] == ["line 1", "line 2", "line 3", "line 4"]
    assert all(pair.valid for pair in read_pairs(paired(tmp_path, b"a\n", b"A\n")))


def test_invalid_utf8_in_a_file_with_both_sides_is_marked(tmp_path: Path) -> None:
    rows = b'{"en": "a", "de": "b"}\n{"en": "a", "de": "\\ud800"}\n'
    for name, content in (("a.tsv", b"a\tb\na\x80\tb\n"), ("a.jsonl", rows)):
        split = single(tmp_path, name, content)
        assert [pair.valid for pair in read_pairs(split, keep_invalid=True)] == [True, False]
        with pytest.raises(UserError, match=rf"{name}, line 2 "):
            count_pairs(split)


def test_other_faults_stop_even_where_invalid_utf8_is_kept(tmp_path: Path) -> None:
    splits = [
        single(tmp_path, "a.tsv", b"a\tb\n\x80\tb\nonly\n"),
        single(tmp_path, "a.jsonl", b"{\n"),
        paired(tmp_path, b"\x80\n", b"A\nB\n"),
    ]
    for split, words in zip(splits, ("line 3 has 1 columns", "line 1 is not a JS", "1 lines .* 2 lines"), strict=True):
        with pytest.raises(UserError, match=words):
            count_pairs(split, keep_invalid=True)
