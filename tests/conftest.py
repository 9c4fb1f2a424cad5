"""Shared fixtures: a toy model, its tokenizers, and a check that tests do not depend on the machine."""

import signal
import subprocess

import pytest
import torch
from tests_support import toy_pairs

from mt.config.schema import Device, Precision
from mt.runtime import device as device_module

# nohup and background jobs ignore these signals, which tests send to themselves
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

PROCESSORS = {"plain": False, "bf16": True}  # {name: whether it has bfloat16 instructions}


def pytest_addoption(parser):
    parser.addoption("--processor", choices=PROCESSORS, help="run the tests as on a CPU without or with bfloat16")


@pytest.fixture(params=PROCESSORS)
def processor(request, monkeypatch):
    """The name of a simulated CPU, without or with bfloat16 instructions."""
    simulate_processor(monkeypatch, request.param)
    return request.param


def simulate_processor(monkeypatch, name):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: PROCESSORS[name])
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)


@pytest.fixture(autouse=True)
def nothing_is_left_to_auto(request, monkeypatch):
    """Fails a test that lets `auto` choose its device or precision, unless it is marked as `auto`.

    The numbers of such a test would depend on the machine. Commands that run in subprocesses must name both on their
    command lines.
    """
    if name := request.config.getoption("processor"):
        simulate_processor(monkeypatch, name)
    if request.node.get_closest_marker("auto"):
        yield
        return
    chosen = []
    choose_device, choose_dtype = device_module.choose_device, device_module.choose_dtype
    start = subprocess.Popen.__init__

    def watched_device(device):
        chosen.extend(["device"] if device is Device.auto else [])
        return choose_device(device)

    def watched_dtype(precision, device):
        chosen.extend(["precision"] if precision is Precision.auto else [])
        return choose_dtype(precision, device)

    def watched_start(self, arguments, *rest, **options):
        chosen.extend(left_to_auto(arguments))
        start(self, arguments, *rest, **options)

    monkeypatch.setattr(device_module, "choose_device", watched_device)
    monkeypatch.setattr(device_module, "choose_dtype", watched_dtype)
    monkeypatch.setattr(subprocess.Popen, "__init__", watched_start)
    yield
    assert not chosen, f"auto chose the {' and the '.join(sorted(set(chosen)))}: name it, or mark the test as `auto`"


def left_to_auto(arguments):
    """The keys that a command line of mt leaves to `auto`; none for other commands."""
    named = {str(argument).partition("=")[0] for argument in arguments}
    if "train" in named:
        return [key for key in ("device", "precision") if f"train.{key}" not in named]
    return ["device"] if {"translate", "evaluate"} & named and "device" not in named else []


@pytest.fixture(scope="session")
def toy_tokenizers():
    from mt.config.schema import TokenizerConfig
    from mt.tokenizers.training import train_tokenizers

    pairs = toy_pairs(300)
    config = TokenizerConfig(vocab_size=330)
    sides = [lambda: iter([pair[0] for pair in pairs]), lambda: iter([pair[1] for pair in pairs])]
    return train_tokenizers(sides, config, ("en", "de"), seed=1, log=lambda line: None)


@pytest.fixture
def store(tmp_path):
    """An empty store of checkpoints, in a run's folder."""
    from mt.checkpoint.store import CheckpointStore
    from mt.run_folder import RunFolder

    return CheckpointStore(RunFolder(tmp_path / "run"))


@pytest.fixture
def toy_model(toy_tokenizers):
    """An untrained model in evaluation mode, with large output weights, so that hypotheses differ."""
    from mt.config.schema import ModelConfig
    from mt.model.transformer import Transformer

    torch.manual_seed(1)
    config = ModelConfig(d_model=16, d_ff=23, heads=2, encoder_layers=2, decoder_layers=2, dropout=0.1)
    model = Transformer(config, toy_tokenizers.source.size, toy_tokenizers.target.size)
    with torch.no_grad():
        model.output.weight.mul_(3)
    return model.eval()
