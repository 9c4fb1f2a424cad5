"""`mt train`: the fallback to the captions, sweeps, and the arguments of several processes."""

import os
from types import SimpleNamespace

import pytest
from tests_support import save_checkpoint

from mt.cli import main
from mt.commands import COMMANDS
from mt.config.compose import compose
from mt.config.schema import Device, Precision
from mt.errors import DataUnavailable, UserError
from mt.runtime.launcher import processes_to_start
from mt.runtime.process import LAUNCHER


@pytest.fixture
def train_as(monkeypatch):
    """Returns a function that replaces `train`."""
    return lambda function: monkeypatch.setattr("mt.training.run.train", function)


@pytest.fixture
def trained_configs(train_as):
    """The configurations of the runs that were started, in order."""
    seen = []

    def train(config):
        seen.append(config)
        return 0

    train_as(train)
    return seen


@pytest.fixture
def unreachable(train_as):
    """The names of the runs that were started, in order; runs on Multi30k find no data."""
    seen = []

    def train(config):
        seen.append(config.run.name)
        if config.data.corpus.name == "multi30k":
            raise DataUnavailable("https://example.org: no route")
        return 0

    train_as(train)
    return seen


@pytest.fixture
def processes(monkeypatch):
    """`started`: the arguments and numbers of processes, in order. `codes`: their exit codes, 0 if empty."""
    seen = SimpleNamespace(started=[], codes=[])

    def run_in_processes(arguments, devices, device):
        if (count := processes_to_start(devices, device)) == 1:
            return None
        seen.started.append((arguments, count))
        return seen.codes.pop(0) if seen.codes else 0

    monkeypatch.setattr("mt.runtime.launcher.run_in_processes", run_in_processes)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    return seen


def test_default_falls_back_to_captions_and_says_so_first_and_last(unreachable, capsys):
    assert main(["train", "model=small"]) == 0
    assert unreachable == ["multi30k-en-de-model.small", "captions-en-de-model.small"]
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == lines[-1] and "Multi30k" in lines[0] and "experiment=captions" in lines[0]
    assert "https://example.org" in lines[0]


def test_the_other_direction_falls_back_too(unreachable):
    assert main(["train", "data.source=de", "data.target=en"]) == 0
    assert unreachable == ["multi30k-de-en", "captions-de-en"]


def test_the_exit_code_after_a_fallback_is_that_of_its_training(train_as, capsys):
    def train(config):
        if config.data.corpus.name == "multi30k":
            raise DataUnavailable("no route")
        return 143

    train_as(train)
    assert main(["train"]) == 143
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and lines[0] == lines[1]


@pytest.mark.parametrize(
    "overrides",
    [
        ["experiment=multi30k"],
        ["data=multi30k"],
        ["data.target=fr"],
        ["data=wmt14_en_de", "data=multi30k"],
        ["data.raw_dir=/somewhere"],
    ],
)
def test_a_choice_never_falls_back(overrides, unreachable, capsys):
    assert main(["train", *overrides]) == 3
    assert len(unreachable) == 1 and "no route" in capsys.readouterr().err


def test_another_mistake_never_falls_back(train_as, capsys):
    seen = []

    def train(config):
        seen.append(config.run.name)
        raise UserError("a bad line")

    train_as(train)
    assert main(["train"]) == 2
    assert (seen, capsys.readouterr().err) == (["multi30k-en-de"], "error: a bad line\n")


def test_one_of_several_processes_never_falls_back_itself(unreachable, monkeypatch, capsys):
    monkeypatch.setenv(LAUNCHER, str(os.getppid()))
    assert main(["train", "model=small", "train.devices=1"]) == 3
    assert unreachable == ["multi30k-en-de-model.small"]
    assert capsys.readouterr().err == "error: https://example.org: no route\n"


def test_the_launcher_falls_back_for_its_processes(processes, capsys):
    processes.codes = [3, 0]
    assert main(["train", "model=small", "train.devices=2", "train.device=cpu"]) == 0
    (first, _), (second, _) = processes.started
    assert first == [
        *("train", "model=small", "train.devices=2", "train.device=cpu"),
        "run.name='multi30k-en-de-model.small'",
    ]
    assert second == [*first[:-1], "experiment=captions", "run.name='captions-en-de-model.small'"]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and lines[0] == lines[1] and "experiment=captions" in lines[0]


@pytest.mark.parametrize("code", [0, 1, 2, 143])
def test_another_exit_code_of_the_processes_is_the_launchers_own(code, processes, capsys):
    processes.codes = [code]
    assert main(["train", "train.devices=2"]) == code
    assert len(processes.started) == 1 and capsys.readouterr().err == ""


def test_the_launcher_does_not_fall_back_from_a_choice(processes, capsys):
    processes.codes = [3]
    assert main(["train", "experiment=multi30k", "train.devices=2"]) == 3
    assert len(processes.started) == 1 and capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["seed=3"], "multi30k-en-de-seed.3"),
        (["run.name=mine", "seed=3"], "mine"),
        (["data=files", "data.train=[a=ü (1).en,b.de]"], None),
    ],
)
def test_the_processes_are_told_the_name_of_the_composed_run(overrides, name, processes, trained_configs):
    overrides = [*overrides, "train.devices=3"]
    assert main(["train", *overrides]) == 0
    config = compose(COMMANDS["train"], overrides)
    (arguments, count), *others = processes.started
    assert (arguments, count) == (["train", *overrides, f"run.name='{config.run.name}'"], 3)
    assert name in (None, config.run.name) and not others and not trained_configs
    assert compose(COMMANDS["train"], arguments[1:]) == config  # as the processes compose it


def test_the_processes_of_a_sweep_are_told_its_names(processes, capsys):
    assert main(["train", "-m", "run.name=x", "train.threads=1,2", "train.devices=2"]) == 0
    names = ["x-train.threads.1", "x-train.threads.2"]
    assert [compose(COMMANDS["train"], arguments[1:]).run.name for arguments, _ in processes.started] == names
    assert [arguments[-1] for arguments, _ in processes.started] == [f"run.name='{name}'" for name in names]
    assert "run 2 of 2, x-train.threads.2" in capsys.readouterr().err


def test_the_processes_take_the_sizes_of_what_they_begin_from(store, toy_model, toy_tokenizers, processes):
    save_checkpoint(store, toy_model, toy_tokenizers, 1)
    overrides = [f"train.init_from={store.run.path}", "train.devices=2"]
    assert main(["train", *overrides]) == 0
    ((arguments, _),) = processes.started
    config = compose(COMMANDS["train"], arguments[1:])
    assert config == compose(COMMANDS["train"], overrides) and config.model.d_model == 16


def test_one_process_trains_here(processes, trained_configs):
    assert main(["train", "train.devices=auto", "train.device=cpu", "train.precision=fp32"]) == 0
    (config,) = trained_configs
    assert (config.train.device, config.train.precision) == (Device.cpu, Precision.fp32)
    assert not processes.started


def test_sweep_trains_one_after_another_under_own_names(trained_configs, capsys):
    assert main(["train", "-m", "optim.warmup_steps=1000,2000", "train.threads=1,2"]) == 0
    assert [config.optim.warmup_steps for config in trained_configs] == [1000, 1000, 2000, 2000]
    assert trained_configs[0].run.name == "multi30k-en-de-optim.warmup_steps.1000-train.threads.1"
    assert len({config.run.name for config in trained_configs}) == 4
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4 and lines[3].startswith("run 4 of 4, ")
    assert lines[3].endswith("multi30k-en-de-optim.warmup_steps.2000-train.threads.2")


def test_sweep_checks_everything_before_the_first_training(trained_configs, capsys):
    assert main(["train", "-m", "seed=1,2", "model.heads=4,3"]) == 2
    assert trained_configs == [] and "model.heads=3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("failure", "code"), [(UserError("no memory"), 2), (DataUnavailable("no route"), 3), (None, 75)]
)
def test_sweep_stops_at_the_first_failure_with_its_name(failure, code, train_as, capsys):
    seen = []

    def train(config):
        seen.append(config.seed)
        if config.seed == 2 and failure:
            raise failure
        return 75 if config.seed == 2 else 0

    train_as(train)
    assert main(["train", "-m", "seed=1,2,3", "data=multi30k"]) == code
    assert seen == [1, 2]
    assert "multi30k-en-de-seed.2" in capsys.readouterr().err.splitlines()[-1]


def test_sweep_that_is_interrupted_says_where(train_as, capsys):
    def train(config):
        raise KeyboardInterrupt

    train_as(train)
    assert main(["train", "-m", "seed=1,2"]) == 130
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:] == ["stopped in run 1 of 2, multi30k-en-de-seed.1", "error: interrupted"]


def test_each_training_of_a_sweep_falls_back_under_its_own_name(unreachable, capsys):
    assert main(["train", "-m", "run.name=x", "train.threads=1,2"]) == 0
    assert unreachable == ["x-train.threads.1"] * 2 + ["x-train.threads.2"] * 2
    assert capsys.readouterr().err.count("experiment=captions") == 4


def test_other_processes_than_the_first_say_nothing(unreachable, monkeypatch, capsys):
    """Under torchrun, each process falls back by itself, and only rank 0 reports it."""
    monkeypatch.setenv("RANK", "1")
    assert COMMANDS["train"].run([]) == 0
    assert unreachable == ["multi30k-en-de", "captions-en-de"] and capsys.readouterr().err == ""
