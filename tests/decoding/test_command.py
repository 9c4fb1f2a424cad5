"""`mt translate`: a line for a line, whatever the bytes, with the engine that was asked for."""

import io
import sys

import pytest
from tests_support import save_checkpoint

from mt.checkpoint_store import CheckpointStore
from mt.config import DecodeConfig, Device, TranslateJob
from mt.decoding.command import translate_command
from mt.decoding.translator import Translator
from mt.errors import UserError


@pytest.fixture
def checkpoint(toy_model, toy_tokenizers, tmp_path):
    save_checkpoint(CheckpointStore(tmp_path / "a run ü=1" / "checkpoints"), toy_model, toy_tokenizers, 1)
    return tmp_path / "a run ü=1"


def run_command(monkeypatch, capfdbinary, data, **job):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    translate_command(TranslateJob(device=Device.cpu, **job))
    return capfdbinary.readouterr()


def test_a_line_for_a_line_whatever_the_bytes(checkpoint, monkeypatch, capfdbinary):
    data = b"\xef\xbb\xbfa dog\n\n\xff\xfe bad\r\nthe \xe2\x80\xa8 cat\x0b\x85\nlast without end"
    job = {"checkpoint": str(checkpoint), "decode": DecodeConfig(beam_size=2)}
    out, err = run_command(monkeypatch, capfdbinary, data, **job)
    lines = out.decode("utf-8").split("\n")
    assert len(lines) == 6 and lines[-1] == "" and lines[1] == "" and all(lines[i] for i in (0, 2, 3, 4))
    assert len(out.decode("utf-8").splitlines()) == 5
    assert b"2 lines are not UTF-8" in err
    assert lines[0] == Translator.load(checkpoint, DecodeConfig(beam_size=2), "cpu").translate(["a dog"])[0]


def test_nbest_lines_name_their_sentence_and_score(checkpoint, monkeypatch, capfdbinary):
    job = {"checkpoint": str(checkpoint), "decode": DecodeConfig(beam_size=3, nbest=2)}
    out, _ = run_command(monkeypatch, capfdbinary, b"a dog\nthe cat\n", **job)
    rows = [line.split(" ||| ") for line in out.decode().splitlines()]
    assert [row[0] for row in rows] == ["0", "0", "1", "1"]
    assert float(rows[0][2]) >= float(rows[1][2])


def test_input_and_output_files(checkpoint, tmp_path, monkeypatch, capfdbinary):
    (tmp_path / "in").write_bytes(b"a dog\n" * 3)
    job = {"checkpoint": str(checkpoint), "input": str(tmp_path / "in"), "output": str(tmp_path / "out")}
    out, _ = run_command(monkeypatch, capfdbinary, b"", **job)
    assert out == b"" and (tmp_path / "out").read_bytes().count(b"\n") == 3


def test_an_output_that_is_the_input_is_refused(checkpoint, tmp_path, monkeypatch, capfdbinary):
    (tmp_path / "in").write_bytes(b"a dog\n")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    for name in ("in", "link"):
        job = {"checkpoint": str(checkpoint), "input": str(tmp_path / "in"), "output": str(tmp_path / name)}
        with pytest.raises(UserError, match="is the input"):
            run_command(monkeypatch, capfdbinary, b"", **job)
    assert (tmp_path / "in").read_bytes() == b"a dog\n"


def test_no_input_gives_no_output(checkpoint, monkeypatch, capfdbinary):
    assert run_command(monkeypatch, capfdbinary, b"", checkpoint=str(checkpoint))[0] == b""
