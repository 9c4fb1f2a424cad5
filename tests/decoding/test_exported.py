"""Exported models: limits, lines that are too long, and corrupt files."""

import json
from dataclasses import replace

import pytest
from export_support import LINES, exported_run

from mt.config.schema import DecodeConfig, Positions
from mt.decoding.exported import ExportedTranslator, is_export
from mt.decoding.translator import Translator
from mt.errors import Corrupt, UserError


@pytest.fixture
def exported(toy_tokenizers, tmp_path):
    """Returns a function that makes a run and its export: (run, export)."""
    return lambda *arguments, **options: exported_run(tmp_path, toy_tokenizers, *arguments, **options)


def test_neighbours_and_limits(exported):
    _, folder = exported()
    tool = ExportedTranslator.load(folder, DecodeConfig(beam_size=3, nbest=2, max_length_a=0.0, max_length_b=4), 1)
    whole = tool.translate_nbest(LINES)
    assert all(len(found) == 2 and found[0].score >= found[1].score for found in whole if found[0].text)
    assert all(len(each.tokens) <= 4 for found in whole for each in found)
    assert any(each.at_limit for found in whole for each in found)
    tool.decode = replace(tool.decode, max_length_a=0.7, max_length_b=1)  # each sentence has its own limit
    whole = tool.translate_nbest(LINES)
    alone = [tool.translate_nbest([line])[0] for line in LINES]
    assert [[each.tokens for each in found] for found in alone] == [[each.tokens for each in found] for found in whole]
    assert len({len(found[0].tokens) for found in whole if found[0].at_limit}) > 2
    tool.decode = replace(tool.decode, max_length_a=0.0, max_length_b=4)
    whole = tool.translate_nbest(LINES)
    for least, most in ((3, 4), (40, 4), (0, 1)):  # a limit of 1 allows only EOS
        tool.decode = replace(tool.decode, min_length=least, max_length_b=most, nbest=1)
        lengths = [len(found[0].tokens) for line, found in zip(LINES, tool.translate_nbest(LINES), strict=True) if line]
        assert all(min(least, most - 1) <= length - 1 < most for length in lengths)
    tool.decode = replace(tool.decode, min_length=0, max_length_b=4, nbest=2)
    alone = [tool.translate_nbest([line])[0] for line in LINES]
    assert [[each.text for each in found] for found in alone] == [[each.text for each in found] for found in whole]


def test_a_line_beyond_the_positions_is_cut_and_counted(exported):
    run, folder = exported(positions=Positions.learned, max_positions=6)
    decode = DecodeConfig(beam_size=1, max_length_a=2.0, max_length_b=9)
    tool, own = ExportedTranslator.load(folder, decode, threads=1), Translator.load(run, decode, "cpu", threads=1)
    lines = ["a dog likes the big red cat and a dog", "a"]
    assert tool.too_long(lines) == own.too_long(lines) == 1
    assert [found[0].text for found in tool.translate_nbest(lines)] == own.translate(lines)


def test_a_corrupt_export_is_refused(exported):
    _, folder = exported()
    for name in ("model.bin", "tokenizer.model", "config.yaml"):
        content = (folder / name).read_bytes()
        for wrong in (content[:-7], content[:-1] + bytes([content[-1] ^ 1]), b"", None):
            if wrong is None:
                (folder / name).unlink()
            else:
                (folder / name).write_bytes(wrong)
            with pytest.raises(Corrupt, match=f"{name} (is corrupt|cannot be read)") as error:
                ExportedTranslator.load(folder, DecodeConfig(), threads=1)
            assert "\n" not in str(error.value)
        (folder / name).write_bytes(content)
    assert ExportedTranslator.load(folder, DecodeConfig(), threads=1).translate_nbest(["a dog"])


def test_a_folder_that_is_no_export_of_this_mt_is_refused(exported):
    _, folder = exported()
    path = folder / "export.json"
    meta = json.loads(path.read_text())
    texts = [json.dumps(meta | change) for change in ({"format": 99}, {"positions": 0}, {"hashes": None})]
    for text in (*texts, "{", "[]", None):
        path.unlink() if text is None else path.write_text(text)
        assert is_export(folder) == (text is not None)
        with pytest.raises(UserError, match="make it again with mt export"):
            ExportedTranslator.load(folder, DecodeConfig(), threads=1)
