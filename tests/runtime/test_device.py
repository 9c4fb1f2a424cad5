import os
import signal

import pytest
import torch

from mt.config import Device, Precision
from mt.errors import UserError
from mt.runtime import distributed
from mt.runtime.device import choose_device, choose_products, explained_memory, start
from mt.runtime.signals import STOP_SIGNALS
from mt.runtime.stop import StopRequest

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


def test_a_gpu_that_is_not_there_is_an_error_and_auto_takes_the_cpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device(Device.auto) == choose_device(Device.cpu) == CPU
    with pytest.raises(UserError, match="device=cpu"):
        choose_device(Device.cuda)


def test_precision_follows_the_hardware(monkeypatch):
    for fast, expected in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda fast=fast: fast)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
        assert choose_products(Precision.auto, CPU) == expected
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, fast=fast: (8, 0) if fast else (7, 5))
        assert choose_products(Precision.auto, CUDA) == expected
    assert choose_products(Precision.bf16, CPU) == torch.bfloat16
    assert choose_products(Precision.fp16, CUDA) == torch.float16
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert choose_products(Precision.tf32, CUDA) == torch.float32
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    with pytest.raises(UserError, match=r"compute capability 8\.0"):
        choose_products(Precision.tf32, CUDA)
    for precision in (Precision.fp16, Precision.tf32):
        with pytest.raises(UserError, match="needs a GPU"):
            choose_products(precision, CPU)


def test_threads_and_products_are_as_asked():
    before = torch.get_num_threads()
    try:
        runtime = start(Device.cpu, Precision.bf16, 1)
        assert torch.get_num_threads() == 1
        with runtime.autocast():
            product = torch.ones(3, 3) @ torch.ones(3, 3)
        assert product.dtype == torch.bfloat16
        assert "bfloat16" in runtime.describe()
        start(Device.cpu, Precision.fp32, 0)
        assert torch.get_num_threads() == len(os.sched_getaffinity(0))
    finally:
        torch.set_num_threads(before)


def test_a_compiled_model_keeps_its_parameters_and_is_compiled_for_any_length(monkeypatch):
    model, asked = torch.nn.Linear(2, 3), []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self, **options: asked.append((self, options)))
    assert distributed.replicate(model, CPU, compiled=True) is model
    assert asked == [(model, {"dynamic": True})]


def test_one_process_is_the_first_of_one():
    assert (distributed.rank(), distributed.world_size()) == (0, 1)


def test_signals_ask_and_a_third_ctrl_c_interrupts():
    handlers = [signal.getsignal(number) for number in STOP_SIGNALS]
    for number in STOP_SIGNALS:
        with StopRequest() as stop:
            assert not stop.wanted()
            os.kill(os.getpid(), number)
            assert stop.wanted() and stop.number is None  # until all processes agree
            assert stop.agree(2.5) == 2.5
            assert stop.number == number

    def interrupt(times):
        with StopRequest():
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupt(3)
    with pytest.raises(KeyboardInterrupt):
        interrupt(1)  # nobody agrees on it any more: it does what it does elsewhere
    assert handlers == [signal.getsignal(number) for number in STOP_SIGNALS]


def test_a_hangup_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.wanted()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_memory_that_runs_out_names_the_setting():
    for error in (
        torch.OutOfMemoryError("CUDA out of memory."),
        MemoryError(),
        RuntimeError("can't allocate memory: 9"),
    ):
        with (
            pytest.raises(UserError, match=r"out of memory with train\.batch_tokens=9: lower it"),
            explained_memory("train.batch_tokens", 9),
        ):
            raise error
    with pytest.raises(RuntimeError, match="shapes"), explained_memory("train.batch_tokens", 9):
        raise RuntimeError("shapes differ")
    with pytest.raises(UserError, match="out of memory"), explained_memory("train.batch_tokens", 9):
        torch.empty(2**50)  # what torch itself raises
