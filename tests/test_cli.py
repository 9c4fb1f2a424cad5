"""Command lines and exit codes: flags, help, and the messages for mistakes and errors."""

import errno
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from tests_support import save_checkpoint

from mt.checkpoint.store import CheckpointStore
from mt.cli import help_text, main, overview
from mt.commands import COMMANDS
from mt.commands.evaluate import EvaluateConfig
from mt.commands.export import ExportConfig
from mt.commands.translate import TranslateConfig
from mt.config.overrides import expand_sweep, options, parse_override
from mt.config.schema import DataConfig, TrainConfig
from mt.errors import Corrupt, DataUnavailable, UserError
from mt.run_folder import RunFolder

ROOT = Path(__file__).parents[1]


@pytest.fixture
def calls(monkeypatch):
    """The arguments of the functions behind the commands, in order. Stand-ins replace the functions."""
    seen: list[tuple[str, object]] = []

    def stand_in(name, result):
        def work(given, *rest, **options):
            seen.append((name, given))
            return result

        return work

    monkeypatch.setattr("mt.training.run.train", stand_in("train", 0))
    monkeypatch.setattr("mt.corpora.locate.locate", stand_in("prepare", SimpleNamespace(find_tests={})))
    monkeypatch.setattr("mt.data.preparation.prepare", lambda *given: SimpleNamespace(folder="prepared"))
    for name in ("evaluate", "translate", "export"):
        monkeypatch.setattr(f"mt.commands.{name}.{name}", stand_in(name, 0))
    monkeypatch.setattr(
        "mt.checkpoint.store.CheckpointStore.average", lambda store, names: stand_in("average", store.folder)(names)
    )
    return seen


@pytest.fixture
def trained(tmp_path, toy_model, toy_tokenizers):
    """A run folder with a checkpoint that decodes with beam 7."""
    store = CheckpointStore(RunFolder(tmp_path / "a=b"))
    save_checkpoint(store, toy_model, toy_tokenizers, 1)
    return store.run.path


def train_as(monkeypatch, function):
    monkeypatch.setattr("mt.training.run.train", function)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_overview_lists_the_commands(arguments, capsys):
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert all(f"  {name} " in out for name in COMMANDS) and not err


def test_help_needs_neither_torch_nor_hydra():
    code = (
        "import sys; from mt.cli import main; main(['--help']); main(['train', '--help']);"
        "sys.exit(str([m for m in ('torch', 'hydra', 'omegaconf', 'numpy') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version_is_one_line(flag, capsys):
    assert main([flag]) == 0
    assert re.fullmatch(r"mt \d+\.\d+\.\d+\S*\n", capsys.readouterr().out)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["seed=5", "--help"], ["no such key", "-h"]])
def test_help_of_a_command_wherever_the_flag_is(name, arguments, calls, capsys):
    assert main([name, *arguments]) == 0
    out, err = capsys.readouterr()
    assert f"usage: mt {name} " in out and not err and calls == []


def test_each_command_gets_its_configuration(calls, trained, capsys):
    assert main(["train", "model=small"]) == 0
    assert main(["prepare", "data.target=fr"]) == 0
    assert main(["evaluate", f"checkpoint={trained}"]) == 0
    assert main(["translate", "decode.nbest=2", f"checkpoint={trained}"]) == 0
    assert main(["average", f"checkpoint={trained}", "count=1"]) == 0
    assert main(["export", f"checkpoint={trained}"]) == 0
    assert [name for name, _ in calls] == list(COMMANDS)
    train, prepare, evaluate, translate, average, export = (given for _, given in calls)
    assert isinstance(train, TrainConfig) and train.model.d_model == 256
    assert isinstance(prepare, DataConfig) and prepare.target == "fr"
    assert isinstance(evaluate, EvaluateConfig) and isinstance(translate, TranslateConfig)
    assert (evaluate.checkpoint, evaluate.decode.beam_size) == (str(trained), 7)
    assert (translate.decode.beam_size, translate.decode.nbest) == (7, 2)
    assert average == ["update-0000001"]
    assert isinstance(export, ExportConfig) and export.checkpoint == str(trained)
    assert capsys.readouterr().out.splitlines() == ["prepared", str(trained / "checkpoints")]


def test_exit_code_of_the_command_is_ours(calls, monkeypatch):
    train_as(monkeypatch, lambda config: 75)
    assert main(["train"]) == 75


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], ["'trian'", "did you mean train?"]),
        (["train", "optim.lrr=1"], ["optim.lrr=1"]),
        (["train", "--config-dir=x"], ["--config-dir=x"]),
        (["train", "--cfg", "hydra"], ["--cfg job"]),
        (["train", "--multirun=3"], ["no option --multirun=3"]),
        (["train", "--help=x"], ["no option --help=x"]),
        (["train", "--cfg"], ["--cfg job"]),
        (["train", "--cfg", "job", "-m", "seed=1,2"], ["leave out -m"]),
        (["translate", "-m", "checkpoint=x"], ["-m"]),
        (["train", "-m", "seed=1,x"], ["seed=x"]),
        (["average"], ["checkpoint="]),
        (["evaluate", "checkpoint=no/run"], ["checkpoint=no/run", "there is no folder"]),
        (["evaluate", "checkpoint=no/run", "--cfg", "job"], ["checkpoint=no/run", "there is no folder"]),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, words, capsys, calls):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("error: ")
    assert all(word in err for word in words)
    assert calls == []


def test_cfg_job_prints_what_would_run(capsys, calls, trained):
    assert main(["train", "optim.warmup_steps=7", "--cfg", "job"]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["optim"]["warmup_steps"] == 7
    assert printed["run"]["name"] == "multi30k-en-de-optim.warmup_steps.7"
    assert main(["evaluate", "--cfg=job", f"checkpoint={trained}"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["decode"]["beam_size"] == 7
    assert main(["-c", "job"]) == 2  # the command is missing
    assert main(["average", f"checkpoint={trained}", "-c", "job"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == {"checkpoint": str(trained), "count": 5, "which": "last"}
    assert calls == []


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UserError("two\nlines"), 2, "error: two lines\n"),
        (Corrupt("x is cut short"), 2, "error: x is cut short\n"),
        (DataUnavailable("x: no route"), 3, "error: x: no route\n"),
        (PermissionError(errno.EACCES, "Permission denied", "/x/y"), 1, "error: /x/y: Permission denied\n"),
        (
            OSError(errno.EROFS, "Read-only file system", "outputs"),
            1,
            "error: outputs: Read-only file system\n",
        ),
        (OSError(errno.EXDEV, "Invalid link", "a", None, "b"), 1, "error: a -> b: Invalid link\n"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "error: No space left on device\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141, ""),
    ],
)
def test_errors_end_in_one_line(error, code, line, monkeypatch, capsys):
    def fail(config):
        raise error

    train_as(monkeypatch, fail)
    assert main(["train", "experiment=multi30k"]) == code
    assert capsys.readouterr().err == line


def test_our_own_bugs_keep_their_traceback(monkeypatch):
    def fail(config):
        raise AssertionError("ours")

    train_as(monkeypatch, fail)
    with pytest.raises(AssertionError, match="ours"):
        main(["train"])


def one_of_several(launcher, *arguments):
    """Run `mt ARGUMENTS` as one of several processes, whose launcher has this process id."""
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MT_LAUNCHER": str(launcher)}
    command = [sys.executable, "-m", "mt", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    "arguments", [["train", "train.device=cpu", "train.precision=fp32", "--cfg", "job"], ["--help"]]
)
def test_a_process_whose_launcher_has_ended_does_nothing(arguments):
    orphan = one_of_several(os.getppid(), *arguments)  # not its parent, so the launcher counts as ended
    assert (orphan.returncode, orphan.stdout) == (2, "")
    assert orphan.stderr == "error: the process that started this one has ended\n"
    child = one_of_several(os.getpid(), *arguments)
    assert (child.returncode, child.stderr) == (0, "") and child.stdout


def test_overview_describes_the_commands():
    lines = overview().splitlines()
    assert all(f"  {command.name:<11}{command.help}" in lines for command in COMMANDS.values())
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_shows_every_key(name, capsys):
    command = COMMANDS[name]
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert out == help_text(command) + "\n"
    lines = out.splitlines()
    assert f"usage: mt {name}" in out and "examples:" in lines
    for key, item in command.keys.items():
        assert any(line.startswith(f"  {key}=") for line in lines)
        assert item.metadata["help"].split()[0] in out
    for group in command.groups:
        assert f"  {group}=" in lines
        assert all(f"    {choice:<16}{description}" in lines for choice, description in options(group).items())
    assert max(map(len, lines)) <= 120


def test_help_of_train_shows_defaults_limits_and_choices():
    text = help_text(COMMANDS["train"])
    assert "optim.warmup_steps=4000" in text and "at least 1" in text and "    tiny " in text
    assert "one of adam, adamw, sgd" in text and "  train.max_updates=null" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_only_what_can_be_swept_or_composed_of_an_experiment_says_so(name):
    command, text = COMMANDS[name], help_text(COMMANDS[name])
    assert ("[-m]" in text) == (command.sweep is not None) == (name == "train")
    assert ("An experiment (experiment=)" in text) == ("experiment" in command.groups) == (name in ("train", "prepare"))


@pytest.mark.parametrize(
    ("name", "example"),
    [(name, example) for name, command in COMMANDS.items() for _, example in command.examples],
)
def test_examples_are_commands(name, example):
    mt, command, *arguments = shlex.split(example.partition(" < ")[0])
    assert (mt, command) == ("mt", name)
    overrides = [argument for argument in arguments if "=" in argument]
    lines = expand_sweep(COMMANDS[name], overrides)[0] if "-m" in arguments else [overrides]
    assert len(lines) == (2 if "-m" in arguments else 1)
    for override in (override for line in lines for override in line):
        assert parse_override(COMMANDS[name], override)


def test_a_wrong_setting_is_reported_before_torch_is_imported():
    program = "import sys; from mt.cli import main; from mt.commands import COMMANDS\n"
    program += "codes = [main([name, 'no_such.key=1']) for name in COMMANDS]\n"
    program += "sys.exit(set(codes) != {2} or 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, len(done.stderr.splitlines())) == (0, len(COMMANDS)), done.stderr
