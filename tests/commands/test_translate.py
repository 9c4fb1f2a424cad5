"""`mt translate` writes a line for every line of any bytes, with mt's own search or with a named export."""

import io
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest
from export_support import LINES, exported_run
from tests_support import save_checkpoint

from mt.checkpoint.store import CheckpointStore
from mt.commands import translate as command
from mt.commands.translate import TranslateConfig, translate, translate_with_export
from mt.config.schema import DecodeConfig, Device, Precision
from mt.decoding.exported import ExportedTranslator
from mt.decoding.translator import Translator
from mt.errors import Corrupt, UserError
from mt.run_folder import RunFolder


@pytest.fixture
def checkpoint(toy_model, toy_tokenizers, tmp_path):
    save_checkpoint(CheckpointStore(RunFolder(tmp_path / "a run ü=1")), toy_model, toy_tokenizers, 1)
    return tmp_path / "a run ü=1"


def run_command(monkeypatch, capfdbinary, data, **config):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    translate(TranslateConfig(device=Device.cpu, **config))
    return capfdbinary.readouterr()


def test_a_line_for_a_line_whatever_the_bytes(checkpoint, monkeypatch, capfdbinary):
    data = b"\xef\xbb\xbfa dog\n\n\xff\xfe bad\r\nthe \xe2\x80\xa8 cat\x0b\x85\nlast without end"
    config = {"checkpoint": str(checkpoint), "decode": DecodeConfig(beam_size=2)}
    out, err = run_command(monkeypatch, capfdbinary, data, **config)
    lines = out.decode("utf-8").split("\n")
    assert len(lines) == 6 and lines[-1] == "" and lines[1] == "" and all(lines[i] for i in (0, 2, 3, 4))
    assert len(out.decode("utf-8").splitlines()) == 5
    assert b"2 lines are not UTF-8" in err
    assert lines[0] == Translator.load(checkpoint, DecodeConfig(beam_size=2), "cpu").translate(["a dog"])[0]


def test_nbest_lines_name_their_sentence_and_score(checkpoint, monkeypatch, capfdbinary):
    config = {"checkpoint": str(checkpoint), "decode": DecodeConfig(beam_size=3, nbest=2)}
    out, _ = run_command(monkeypatch, capfdbinary, b"a dog\nthe cat\n", **config)
    rows = [line.split(" ||| ") for line in out.decode().splitlines()]
    assert [row[0] for row in rows] == ["0", "0", "1", "1"]
    assert float(rows[0][2]) >= float(rows[1][2])


def test_input_and_output_files(checkpoint, tmp_path, monkeypatch, capfdbinary):
    (tmp_path / "in").write_bytes(b"a dog\n" * 3)
    config = {"checkpoint": str(checkpoint), "input": str(tmp_path / "in"), "output": str(tmp_path / "out")}
    out, _ = run_command(monkeypatch, capfdbinary, b"", **config)
    assert out == b"" and (tmp_path / "out").read_bytes().count(b"\n") == 3


def test_an_output_that_is_the_input_is_refused(checkpoint, tmp_path, monkeypatch, capfdbinary):
    (tmp_path / "in").write_bytes(b"a dog\n")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    for name in ("in", "link"):
        config = {"checkpoint": str(checkpoint), "input": str(tmp_path / "in"), "output": str(tmp_path / name)}
        with pytest.raises(UserError, match="is the input"):
            run_command(monkeypatch, capfdbinary, b"", **config)
    assert (tmp_path / "in").read_bytes() == b"a dog\n"


def test_a_missing_input_is_named_by_its_key_even_if_the_output_exists(checkpoint, tmp_path, monkeypatch, capfdbinary):
    (tmp_path / "out").write_bytes(b"kept\n")
    config = {"checkpoint": str(checkpoint), "input": str(tmp_path / "no"), "output": str(tmp_path / "out")}
    with pytest.raises(UserError, match=r"^input=.*/no"):
        run_command(monkeypatch, capfdbinary, b"", **config)
    assert (tmp_path / "out").read_bytes() == b"kept\n"


def test_no_input_gives_no_output(checkpoint, monkeypatch, capfdbinary):
    assert run_command(monkeypatch, capfdbinary, b"", checkpoint=str(checkpoint))[0] == b""


@pytest.fixture(scope="module")
def made(toy_tokenizers, tmp_path_factory):
    return exported_run(tmp_path_factory.mktemp("exported"), toy_tokenizers)


@pytest.fixture
def exported(made, tmp_path):
    """A run and its export, which the test may change."""
    run, folder = made
    shutil.copytree(run, tmp_path / run.name)
    return tmp_path / run.name, tmp_path / run.name / folder.relative_to(run)


@pytest.fixture
def files(tmp_path):
    """Options that name a file of LINES and an output file, and the path of the output file."""
    (tmp_path / "in").write_text("".join(line + "\n" for line in LINES), encoding="utf-8")
    return {"input": str(tmp_path / "in"), "output": str(tmp_path / "out")}, tmp_path / "out"


def engines(monkeypatch):
    """The engines that translate from now on, in a list that grows with each call."""
    asked = []
    for engine in (Translator, ExportedTranslator):

        def watched(self, lines, engine=engine, real=engine.translate_nbest):
            asked.append(engine)
            return real(self, lines)

        monkeypatch.setattr(engine, "translate_nbest", watched)
    return asked


def as_text(found):
    return "".join(hypotheses[0].text + "\n" for hypotheses in found)


def test_a_run_is_translated_with_its_own_search_even_if_it_has_an_export(exported, files, monkeypatch, capsys):
    run, folder = exported
    options, output = files
    decode = DecodeConfig(beam_size=2)
    expected = as_text(Translator.load(run, decode, "cpu", threads=1).translate_nbest(LINES))
    capsys.readouterr()
    asked = engines(monkeypatch)
    config = TranslateConfig(checkpoint=str(run), device=Device.cpu, threads=1, decode=decode, **options)
    translate(config)
    assert asked == [Translator] and output.read_text(encoding="utf-8") == expected
    translate(replace(config, checkpoint=str(run / "checkpoints" / "update-0000001")))
    assert asked == [Translator] * 2
    (folder / "model.bin").write_bytes(b"")  # the export is not used
    translate(config)
    assert asked == [Translator] * 3 and output.read_text(encoding="utf-8") == expected
    assert capsys.readouterr().err == ""


def test_an_export_that_is_named_translates(exported, files, monkeypatch, capsys):
    _, folder = exported
    options, output = files
    decode = DecodeConfig(beam_size=7)  # as in the checkpoint
    expected = as_text(ExportedTranslator.load(folder, decode, threads=1).translate_nbest(LINES))
    capsys.readouterr()
    asked = engines(monkeypatch)
    assert command.run([f"checkpoint={folder}", "threads=1", *(f"{key}={path}" for key, path in options.items())]) == 0
    assert asked == [ExportedTranslator] and output.read_text(encoding="utf-8") == expected
    assert capsys.readouterr().err.startswith(f"{folder}, CTranslate2 ")
    for changed in ({"device": Device.cpu}, {"precision": Precision.auto}):
        config = TranslateConfig(checkpoint=str(folder), decode=decode, **changed, **options)
        translate_with_export(config, folder)
    assert asked == [ExportedTranslator] * 3


@pytest.mark.parametrize(
    ("changed", "launched"),
    [({"device": Device.cuda}, "1"), ({"devices": "2"}, "1"), ({"precision": Precision.bf16}, "1"), ({}, "2")],
)
def test_an_export_refuses_what_it_cannot_do(exported, files, monkeypatch, changed, launched):
    options, output = files
    monkeypatch.setenv("WORLD_SIZE", launched)
    config = TranslateConfig(checkpoint=str(exported[1]), **changed, **options)
    with pytest.raises(UserError, match="leave out device, devices and precision") as error:
        translate_with_export(config, exported[1])
    assert "\n" not in str(error.value) and not output.exists()


@pytest.mark.parametrize("option", ["device=cuda", "devices=2", "precision=bf16"])
def test_the_command_line_refuses_it_in_one_line(exported, option):
    options = [option] if option.startswith("device=") else ["device=cpu", option]
    arguments = [sys.executable, "-m", "mt", "translate", f"checkpoint={exported[1]}", *options]
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: checkpoint=") and done.stderr.count("\n") == 1


def test_a_corrupt_export_that_is_named_is_refused(exported, files):
    options, output = files
    path = exported[1] / "model.bin"
    path.write_bytes(path.read_bytes()[:-7])
    config = TranslateConfig(checkpoint=str(exported[1]), device=Device.cpu, **options)
    with pytest.raises(Corrupt, match=r"model\.bin is corrupt") as error:
        translate_with_export(config, exported[1])
    assert "\n" not in str(error.value) and not output.exists()


def test_an_export_without_ctranslate2_is_told_how_to_install_it(exported, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(UserError, match=r"needs CTranslate2 \(pip install ctranslate2\)"):
        translate_with_export(TranslateConfig(checkpoint=str(exported[1]), device=Device.cpu), exported[1])


def test_translating_with_an_export_imports_no_torch(exported):
    program = "import sys; from mt.cli import main; sys.exit(main(sys.argv[1:]) or 'torch' in sys.modules)"
    arguments = [sys.executable, "-c", program, "translate", f"checkpoint={exported[1]}", "device=cpu"]
    done = subprocess.run(arguments, input=b"a dog\n\n", capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.count(b"\n") == 2
