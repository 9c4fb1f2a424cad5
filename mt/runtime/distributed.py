"""Collective operations among the processes of a command. In a single process they do nothing.

Only this module and `launcher` import torch.distributed. The functions communicate only after `join` has added this
process to the launcher's group, so that a program with its own process group can use `mt.Translator`.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mt.errors import UserError

T = TypeVar("T")
SUM, MAX = torch.distributed.ReduceOp.SUM, torch.distributed.ReduceOp.MAX

# In effect no timeout, because preparing or decoding may take hours. If a process dies, its connections close and the
# launcher ends the others. (gloo stores milliseconds in 32 bits.) Joining and the gradient group keep torch's timeouts.
_PATIENCE = timedelta(days=20)
_STOP = "mt/stop"
_ASK_EVERY = 0.2  # seconds


@dataclass
class _Group:
    """The processes of a command. `control` carries small CPU objects; gradients have their own group."""

    rank: int
    size: int
    control: Any
    store: torch.distributed.Store
    asked: float = 0.0


_group: _Group | None = None


def launched() -> bool:
    """Whether a launcher started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def rank() -> int:
    """The rank of this process among all processes."""
    return _group.rank if _group else 0


def world_size() -> int:
    """The number of processes, on all machines."""
    return _group.size if _group else 1


def local_rank() -> int:
    """The rank of this process on its machine, which is also the index of its GPU."""
    return int(os.environ.get("LOCAL_RANK", 0)) if launched() else 0


def local_world_size() -> int:
    """The number of processes on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", 1)) if launched() else 1


def join(gpu: bool) -> None:
    """Join the launcher's group, if there is one. Gradients are all-reduced by NCCL if `gpu`, else by gloo."""
    global _group
    if _group or not launched() or int(os.environ["WORLD_SIZE"]) == 1:
        return
    if os.environ.get("MASTER_ADDR") in ("127.0.0.1", "localhost") and sys.platform == "linux":
        # The host name then need not resolve
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store, number, size = next(torch.distributed.rendezvous("env://"))
    device = torch.device("cuda", local_rank()) if gpu else None
    backend = "nccl" if gpu else "gloo"
    torch.distributed.init_process_group(backend, store=store, rank=number, world_size=size, device_id=device)
    control = torch.distributed.new_group(backend="gloo", timeout=_PATIENCE)
    _group = _Group(number, size, control, store)


def leave() -> None:
    """Leave the group, after all others have called this or have ended."""
    global _group
    if _group:
        with suppress(RuntimeError):
            torch.distributed.barrier(_group.control)
            torch.distributed.destroy_process_group()
        _group = None


def data_parallel(model: nn.Module, device: torch.device) -> nn.Module:
    """Wrap the model so that each backward pass averages the gradients over the processes."""
    if not _group:
        return model
    return DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)


def sync_gradients(ddp_model: nn.Module, wanted: bool) -> AbstractContextManager[None]:
    """Unless `wanted`, backward passes in this block accumulate gradients without averaging them."""
    return nullcontext() if wanted or not isinstance(ddp_model, DistributedDataParallel) else ddp_model.no_sync()


def all_reduce(values: Sequence[float], operation: Any = SUM) -> list[float]:
    """The sum, or another reduction, of each value over all processes, in float64."""
    tensor = torch.tensor(values, dtype=torch.float64)
    if _group:
        torch.distributed.all_reduce(tensor, operation, _group.control)
    return tensor.tolist()


def all_gather(value: T) -> list[T]:
    """The values of all processes in order of rank; any picklable value."""
    if not _group:
        return [value]
    found: list[Any] = [None] * _group.size
    torch.distributed.all_gather_object(found, value, _group.control)
    return found


def broadcast(work: Callable[[], T]) -> T:
    """Call `work` on rank 0 and broadcast its result, or its UserError; the others wait without a timeout."""
    if not _group:
        return work()
    outcome: list[Any] = [None, None]
    if _group.rank == 0:
        try:
            outcome = [work(), None]
        except UserError as error:
            outcome = [None, error]
    torch.distributed.broadcast_object_list(outcome, 0, _group.control)
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


def rank_0_first(work: Callable[[], T]) -> T:
    """Call `work` on rank 0, then on the others, which find its files. If one raises a UserError, all raise it."""
    if not _group:
        return work()
    found: list[T] = []

    def attempt() -> UserError | None:
        try:
            found.append(work())
        except UserError as error:
            return error
        return None

    errors = [broadcast(attempt)]
    if not errors[0]:
        errors = all_gather(attempt() if _group.rank > 0 else None)
    for error in errors:
        if error:
            raise error
    return found[0]


def barrier() -> None:
    """Wait until every process has called this."""
    if _group:
        torch.distributed.barrier(_group.control)


def announce_stop(number: int) -> None:
    """Tell the other processes that this signal requests a stop. Not a collective operation."""
    if _group:
        with suppress(RuntimeError):  # the launcher, which holds the store, has ended; then this process ends, too
            _group.store.set(_STOP, str(number))


def announced_stop() -> int | None:
    """The signal that another process announced, or None; polls only a few times a second."""
    if not _group or time.monotonic() - _group.asked < _ASK_EVERY:
        return None
    try:
        _group.asked = time.monotonic()
        return int(_group.store.get(_STOP)) if _group.store.check([_STOP]) else None
    except RuntimeError:
        return None


def clear_stop() -> None:
    """Clear the announced stop before the same processes train again."""
    barrier()
    if _group and _group.rank == 0:
        _group.store.delete_key(_STOP)
    barrier()


def lost_contact(error: BaseException) -> bool:
    """Whether an exception means that another process has ended."""
    if not _group or not isinstance(error, RuntimeError):
        return False
    text = str(error).lower()
    return isinstance(error, torch.distributed.DistError) or any(word in text for word in ("gloo", "nccl", "peer"))
