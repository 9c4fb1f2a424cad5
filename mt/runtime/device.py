"""Where and in which precision the work is done: device, threads, matrix products, allocator."""

import contextlib
import ctypes
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from mt.config import Device, Precision
from mt.errors import UserError
from mt.runtime import distributed
from mt.runtime.cores import usable_cores

# mallopt's parameter numbers, from glibc's malloc.h
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


@dataclass(frozen=True)
class Runtime:
    """The device and the data type of matrix products, chosen once for a process."""

    device: torch.device
    products: torch.dtype
    tf32: bool = False  # float32 products with 10 bits of mantissa: faster, and not what float32 promises

    def autocast(self) -> AbstractContextManager[object]:
        """Matrix products in the chosen type; parameters, reductions and normalizations stay in float32."""
        if self.products == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=self.products)

    def in_float32(self) -> "Runtime":
        """The same device with full float32 products, which scores are made with. Holds for the whole process."""
        torch.set_float32_matmul_precision("highest")
        return Runtime(self.device, torch.float32)

    def describe(self) -> str:
        """E.g. "cpu, 2 threads, float32 products"."""
        where = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"
        products = "tf32" if self.tf32 else str(self.products).split(".")[1]
        return f"{where}, {torch.get_num_threads()} threads, {products} products"


def start(device: Device, precision: Precision, threads: int, together: bool = False) -> Runtime:
    """Set the process up and say what it runs on. Threads: 0 is its share of the machine's cores.

    `together`: meet the other processes that torch's launcher started, each with the GPU of its number.
    """
    keep_freed_memory()
    torch.set_num_threads(threads or max(1, usable_cores() // distributed.local_world_size()))
    chosen = choose_device(device)
    if together and chosen.type == "cuda" and distributed.launched():
        chosen = _own_gpu()
    if together:
        distributed.join(gpu=chosen.type == "cuda")
    products = choose_products(precision, chosen)
    tf32 = precision is Precision.tf32
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    return Runtime(chosen, products, tf32)


def choose_device(device: Device) -> torch.device:
    """Raises UserError where a GPU is asked for and there is none."""
    if device is Device.cuda and not torch.cuda.is_available():
        raise UserError("device=cuda, but torch finds no GPU here: use device=cpu (or auto), or a CUDA build of torch")
    use_gpu = torch.cuda.is_available() and device is not Device.cpu
    return torch.device("cuda", torch.cuda.current_device()) if use_gpu else torch.device("cpu")


def _own_gpu() -> torch.device:
    processes, gpus = distributed.local_world_size(), torch.cuda.device_count()
    if processes > gpus:
        raise UserError(f"{processes} processes, but torch finds {gpus} GPUs here: start as many processes as GPUs")
    device = torch.device("cuda", distributed.local_rank())
    torch.cuda.set_device(device)
    return device


def choose_products(precision: Precision, device: torch.device) -> torch.dtype:
    """The type of matrix products: auto is bfloat16 where the hardware multiplies in it, else float32."""
    if precision is Precision.auto:
        return torch.bfloat16 if _has_fast_bf16(device) else torch.float32
    if precision in (Precision.fp16, Precision.tf32) and device.type == "cpu":
        raise UserError(f"precision={precision.value} needs a GPU: use bf16, fp32 or auto on a CPU")
    if precision is Precision.tf32 and torch.cuda.get_device_capability(device) < (8, 0):
        raise UserError("precision=tf32 needs a GPU of compute capability 8.0: use fp16, fp32 or auto")
    types = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}
    return types.get(precision, torch.float32)


def _has_fast_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    # Without these instructions bfloat16 is emulated, and several times slower than float32.
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def keep_freed_memory() -> None:
    """Keep glibc from giving large freed tensors back to the kernel, which would fault every page in again.

    Training allocates the same large tensors at every update. A no-op where the C library is not glibc.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


@contextlib.contextmanager
def explained_memory(setting: str, value: int) -> Iterator[None]:
    """Memory that runs out in here is a UserError that names the setting to lower."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        # the GPU's is a class of its own, the CPU's allocator raises a plain RuntimeError
        if not isinstance(error, torch.OutOfMemoryError | MemoryError) and "can't allocate memory" not in str(error):
            raise
        raise UserError(
            f"out of memory with {setting}={value}: lower it (it changes no result, only how much is held at once)"
        ) from error


def peak_memory(device: torch.device) -> float:
    """Largest memory so far in GiB: the GPU's allocated, or the process's resident."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device)) / 2**30
    import resource

    unit = 2**30 if sys.platform == "darwin" else 2**20  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
