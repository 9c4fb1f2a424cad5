import errno
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from omegaconf import OmegaConf

from mt.cli import main
from mt.commands import COMMANDS
from mt.config import DecodeConfig, ModelConfig, TrainJob
from mt.errors import UserError


class Unavailable(UserError):
    """Stands for the download's error."""


@pytest.fixture
def calls(monkeypatch):
    """Stand-ins for the modules behind the commands: what they were given, in order."""
    seen: list[tuple[str, object]] = []
    modules: dict[str, ModuleType] = {"mt.data.download": ModuleType("download")}
    for command in COMMANDS.values():
        module, _, function = command.entry.partition(":")

        def entry(job, name=command.name):
            seen.append((name, job))

        setattr(modules.setdefault(module, ModuleType(module)), function, entry)
    modules["mt.checkpoint"] = ModuleType("checkpoint")
    stored = SimpleNamespace(
        config=TrainJob(decode=DecodeConfig(beam_size=9), model=ModelConfig(d_model=64, dropout=0.7))
    )
    modules["mt.checkpoint"].read_config = None  # no run has been begun
    modules["mt.checkpoint"].config_of = lambda path, key: stored.config
    modules["mt.data.download"].DataUnavailable = Unavailable
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return seen


def train_as(monkeypatch, function):
    monkeypatch.setattr(sys.modules["mt.training.loop"], "train", function)


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
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_shows_every_key(name, capsys):
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"usage: mt {name}" in out and "examples:" in out
    if name == "train":
        assert "optim.warmup_steps=4000" in out and "at least 1" in out and "    tiny " in out
        assert max(map(len, out.splitlines())) <= 120


def test_each_command_gets_its_job(calls):
    assert main(["train", "model=small"]) == 0
    assert main(["prepare"]) == 0
    assert main(["evaluate", "checkpoint=a=b"]) == 0
    assert main(["translate", "decode.nbest=2", "checkpoint=x"]) == 0
    assert main(["average", "checkpoint=x"]) == 0
    assert main(["export", "checkpoint=x"]) == 0
    assert [(name, type(job)) for name, job in calls] == [(name, COMMANDS[name].job) for name in COMMANDS]
    evaluate, translate = calls[2][1], calls[3][1]
    assert (evaluate.checkpoint, evaluate.decode.beam_size) == ("a=b", 9)
    assert (translate.decode.beam_size, translate.decode.nbest) == (9, 2)


def test_exit_code_of_the_command_is_ours(calls, monkeypatch):
    train_as(monkeypatch, lambda job: 75)
    assert main(["train"]) == 75


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], ["'trian'", "did you mean train?"]),
        (["train", "optim.lrr=1"], ["optim.lrr=1"]),
        (["train", "--config-dir=x"], ["--config-dir=x"]),
        (["train", "--cfg", "hydra"], ["--cfg job"]),
        (["train", "--cfg"], ["--cfg job"]),
        (["translate", "-m", "checkpoint=x"], ["-m"]),
        (["train", "-m", "seed=1,x"], ["seed=x"]),
        (["average"], ["checkpoint="]),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, words, capsys, calls):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("error: ")
    assert all(word in err for word in words)
    assert calls == []


def test_cfg_job_prints_what_would_run(capsys, calls):
    assert main(["train", "optim.warmup_steps=7", "--cfg", "job"]) == 0
    printed = OmegaConf.create(capsys.readouterr().out)
    assert printed.optim.warmup_steps == 7 and printed.run.name == "multi30k-en-de-optim.warmup_steps.7"
    assert main(["evaluate", "--cfg=job", "checkpoint=x"]) == 0
    assert OmegaConf.create(capsys.readouterr().out).decode.beam_size == 9
    assert calls == []


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UserError("two\nlines"), 2, "error: two lines\n"),
        (PermissionError(errno.EACCES, "Permission denied", "/x/y"), 1, "error: /x/y: Permission denied\n"),
        (
            OSError(errno.EROFS, "Read-only file system", "outputs"),
            1,
            "error: outputs: Read-only file system\n",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "error: No space left on device\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141, ""),
    ],
)
def test_errors_end_in_one_line(error, code, line, calls, monkeypatch, capsys):
    def fail(job):
        raise error

    train_as(monkeypatch, fail)
    assert main(["train"]) == code
    assert capsys.readouterr().err == line


def test_our_own_bugs_keep_their_traceback(calls, monkeypatch):
    def fail(job):
        raise AssertionError("ours")

    train_as(monkeypatch, fail)
    with pytest.raises(AssertionError, match="ours"):
        main(["train"])


def unreachable(seen):
    def train(job):
        seen.append(job.run.name)
        if job.data.corpus.name == "multi30k":
            raise Unavailable("https://example.org: no route")

    return train


def test_default_falls_back_to_captions_and_says_so_first_and_last(calls, monkeypatch, capsys):
    seen: list[str] = []
    train_as(monkeypatch, unreachable(seen))
    assert main(["train", "model=small"]) == 0
    assert seen == ["multi30k-en-de-model.small", "captions-en-de-model.small"]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == lines[-1] and "Multi30k" in lines[0] and "experiment=captions" in lines[0]
    assert "https://example.org" in lines[0]


@pytest.mark.parametrize(
    "overrides",
    [["experiment=multi30k"], ["data=multi30k"], ["data.target=fr"], ["data=wmt14_en_de", "data=multi30k"]],
)
def test_a_choice_never_falls_back(overrides, calls, monkeypatch, capsys):
    seen: list[str] = []
    train_as(monkeypatch, unreachable(seen))
    assert main(["train", *overrides]) == 3
    assert len(seen) == 1 and "no route" in capsys.readouterr().err


def test_sweep_trains_one_after_another_under_own_names(calls, capsys):
    assert main(["train", "-m", "optim.warmup_steps=1000,2000", "train.threads=1,2"]) == 0
    jobs = [job for _, job in calls]
    assert [job.optim.warmup_steps for job in jobs] == [1000, 1000, 2000, 2000]
    assert jobs[0].run.name == "multi30k-en-de-optim.warmup_steps.1000-train.threads.1"
    assert len({job.run.name for job in jobs}) == 4
    assert "training 4 of 4" in capsys.readouterr().err


@pytest.mark.parametrize(("failure", "code"), [(UserError("no memory"), 2), (None, 75)])
def test_sweep_stops_at_the_first_failure_with_its_name(failure, code, calls, monkeypatch, capsys):
    seen = []

    def train(job):
        seen.append(job.seed)
        if job.seed == 2 and failure:
            raise failure
        return 75 if job.seed == 2 else 0

    train_as(monkeypatch, train)
    assert main(["train", "-m", "seed=1,2,3"]) == code
    assert seen == [1, 2]
    assert "multi30k-en-de-seed.2" in capsys.readouterr().err.splitlines()[-1]


def test_a_training_takes_the_sizes_of_what_it_begins_from(calls):
    assert main(["train", "train.init_from=x", "data.source=de", "data.target=en"]) == 0
    assert main(["train", "train.init_from=x", "model=small"]) == 0
    taken, chosen = (job for _, job in calls)
    assert (taken.model.d_model, taken.tokenizer.vocab_size) == (64, 8000)  # of the checkpoint, not of the recipe
    assert taken.model.dropout == 0.1  # of the recipe: dropout is no size
    assert chosen.model.d_model == 256
    assert main(["train", "train.init_from=x", "tokenizer.vocab_size=900"]) == 2
    assert main(["train", "train.init_from=x", "tokenizer=word"]) == 2
    assert Path(taken.train.init_from).is_absolute()
