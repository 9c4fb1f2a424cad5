"""The device, dtype and threads of a process, and out-of-memory errors."""

import os

import pytest
import torch

from mt.config.schema import Device, Precision
from mt.errors import UserError
from mt.runtime.device import choose_device, choose_dtype, explain_out_of_memory, peak_memory, start_runtime

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
        assert choose_dtype(Precision.auto, CPU) == expected
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, fast=fast: (8, 0) if fast else (7, 5))
        assert choose_dtype(Precision.auto, CUDA) == expected
    assert choose_dtype(Precision.bf16, CPU) == torch.bfloat16
    assert choose_dtype(Precision.fp16, CUDA) == torch.float16
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert choose_dtype(Precision.tf32, CUDA) == torch.float32
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    with pytest.raises(UserError, match=r"compute capability >= 8\.0"):
        choose_dtype(Precision.tf32, CUDA)
    for precision in (Precision.fp16, Precision.tf32):
        with pytest.raises(UserError, match="needs a GPU"):
            choose_dtype(precision, CPU)


def test_threads_and_dtype_are_as_asked():
    before = torch.get_num_threads()
    try:
        runtime = start_runtime(Device.cpu, Precision.bf16, 1)
        assert torch.get_num_threads() == 1
        with runtime.autocast():
            product = torch.ones(3, 3) @ torch.ones(3, 3)
        assert product.dtype == torch.bfloat16
        assert runtime.describe() == "cpu, 1 threads, bfloat16"
        exact = start_runtime(Device.cpu, Precision.fp32, 0)
        assert torch.get_num_threads() == len(os.sched_getaffinity(0))
        for in_float32 in (exact, runtime.in_float32()):
            with in_float32.autocast():
                product = torch.ones(3, 3) @ torch.ones(3, 3)
            assert product.dtype == torch.float32
    finally:
        torch.set_num_threads(before)


def test_memory_that_runs_out_names_the_setting():
    for error in (
        torch.OutOfMemoryError("CUDA out of memory."),
        MemoryError(),
        RuntimeError("can't allocate memory: 9"),
    ):
        with (
            pytest.raises(UserError, match=r"out of memory with train\.batch_tokens=9: lower it"),
            explain_out_of_memory("train.batch_tokens", 9),
        ):
            raise error
    with pytest.raises(RuntimeError, match="shapes"), explain_out_of_memory("train.batch_tokens", 9):
        raise RuntimeError("shapes differ")
    with pytest.raises(UserError, match="out of memory"), explain_out_of_memory("train.batch_tokens", 9):
        torch.empty(2**50)  # torch's own error


def test_the_peak_of_memory_is_in_gib():
    before = peak_memory(CPU)
    filled = torch.ones(300 * 2**20, dtype=torch.uint8)
    assert 0.005 < before <= peak_memory(CPU) < 1000
    assert peak_memory(CPU) > filled.numel() / 2**30
