"""Device, dtype, threads, allocator and random generators of this process."""

import contextlib
import ctypes
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mt.config.schema import Device, Precision
from mt.errors import UserError
from mt.runtime import distributed
from mt.runtime.process import usable_cores

# mallopt's parameter numbers, from glibc's malloc.h
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


@dataclass(frozen=True)
class Runtime:
    """The device, and the dtype of matrix multiplications."""

    device: torch.device
    dtype: torch.dtype
    tf32: bool = False  # float32 with 10 bits of mantissa in matrix multiplications: faster, but not exact

    def autocast(self) -> AbstractContextManager[object]:
        """Run matrix multiplications in `dtype`; parameters, reductions and normalizations stay in float32."""
        if self.dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    def in_float32(self) -> "Runtime":
        """The same device with exact float32, for the final scores. Changes the whole process."""
        torch.set_float32_matmul_precision("highest")
        return Runtime(self.device, torch.float32)

    def describe(self) -> str:
        """For example "cpu, 2 threads, float32"."""
        where = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"
        dtype = "tf32" if self.tf32 else str(self.dtype).removeprefix("torch.")
        return f"{where}, {torch.get_num_threads()} threads, {dtype}"


def start_runtime(device: Device, precision: Precision, threads: int, together: bool = False) -> Runtime:
    """Set up this process and, if `together`, join the launcher's group. threads=0: its share of the cores."""
    keep_freed_memory()
    torch.set_num_threads(threads or max(1, usable_cores() // distributed.local_world_size()))
    chosen = choose_device(device)
    if together and chosen.type == "cuda" and distributed.launched():
        processes, gpus = distributed.local_world_size(), torch.cuda.device_count()
        if processes > gpus:
            raise UserError(f"{processes} processes, but torch finds {gpus} GPUs here: start one process per GPU")
        chosen = torch.device("cuda", distributed.local_rank())
        torch.cuda.set_device(chosen)
    if together:
        distributed.join(gpu=chosen.type == "cuda")
    dtype, tf32 = choose_dtype(precision, chosen), precision is Precision.tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    return Runtime(chosen, dtype, tf32)


def choose_device(device: Device) -> torch.device:
    """The device for a setting. Raises UserError if it asks for a GPU but there is none."""
    if device is Device.cuda and not torch.cuda.is_available():
        raise UserError("device=cuda, but torch finds no GPU here: use device=cpu (or auto), or a CUDA build of torch")
    use_gpu = torch.cuda.is_available() and device is not Device.cpu
    return torch.device("cuda", torch.cuda.current_device()) if use_gpu else torch.device("cpu")


def choose_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """The dtype of matrix multiplications. Raises UserError if the device does not support it."""
    if precision is Precision.auto:
        if device.type == "cuda":
            native = torch.cuda.get_device_capability(device) >= (8, 0)
        else:  # without these instructions bfloat16 is emulated, and several times slower than float32
            native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        return torch.bfloat16 if native else torch.float32
    if precision in (Precision.fp16, Precision.tf32) and device.type == "cpu":
        raise UserError(f"precision={precision.value} needs a GPU: use bf16, fp32 or auto on a CPU")
    if precision is Precision.tf32 and torch.cuda.get_device_capability(device) < (8, 0):
        raise UserError("precision=tf32 needs a GPU of compute capability >= 8.0: use fp16, fp32 or auto")
    types = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}
    return types.get(precision, torch.float32)


def keep_freed_memory() -> None:
    """Keep glibc from returning freed memory to the kernel, because each update allocates the same large tensors."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


@contextlib.contextmanager
def explain_out_of_memory(setting: str, value: int) -> Iterator[None]:
    """Turns out-of-memory errors in this block into a UserError that names the setting to lower."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        # GPU errors have their own class; the CPU allocator raises a plain RuntimeError
        if not isinstance(error, torch.OutOfMemoryError | MemoryError) and "can't allocate memory" not in str(error):
            raise
        raise UserError(f"out of memory with {setting}={value}: lower it (it affects only memory)") from error


def peak_memory(device: torch.device) -> float:
    """Peak memory in GiB: allocated on a GPU, or resident set size on a CPU."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device)) / 2**30
    import resource

    unit = 2**30 if sys.platform == "darwin" else 2**20  # bytes on macOS, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def get_random_states(device: torch.device) -> dict[str, Any]:
    """The states of this process's random generators."""
    states = {"torch": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_random_states(states: Mapping[str, Any], device: torch.device) -> None:
    """Restore the states that `get_random_states` returned."""
    torch.set_rng_state(states["torch"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def seed_process(seed: int, update: int) -> None:
    """Give each process its own random state. Equal states would give all processes the same dropout masks."""
    own = np.random.SeedSequence([seed, update, distributed.rank()]).generate_state(1, np.uint64)
    torch.manual_seed(int(own[0] >> np.uint64(1)))
