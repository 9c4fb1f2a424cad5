"""What a process is among its fellows; for one process, no-ops. With `launcher` the only importer of torch.distributed.

`join` makes this process one of those that torch's launcher started, and everything else here asks whether it did:
a program that has a process group of its own and uses mt's translator is not drawn into it.
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

# Waiting for data to be prepared, or for another's share of a decoding, has no limit worth the name: when a process
# dies its connections close, and its launcher ends the others. (gloo keeps milliseconds in 32 bits.) Meeting at the
# start, and exchanging gradients, keep torch's limits of minutes.
_PATIENCE = timedelta(days=20)
_STOP = "mt/stop"
_ASK_EVERY = 0.2  # seconds between two questions to the store


@dataclass
class _Group:
    """The processes that train together. `control` carries small things of the CPU, gradients go their own way."""

    rank: int
    size: int
    control: Any
    store: torch.distributed.Store
    asked: float = 0.0


_group: _Group | None = None


def launched() -> bool:
    """Whether torch's launcher started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def rank() -> int:
    """This process's number, from 0."""
    return _group.rank if _group else 0


def world_size() -> int:
    """How many processes work together."""
    return _group.size if _group else 1


def local_rank() -> int:
    """This process's number on its machine, from 0: the number of its GPU."""
    return int(os.environ.get("LOCAL_RANK", 0)) if launched() else 0


def local_world_size() -> int:
    """How many processes share this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", 1)) if launched() else 1


def join(gpu: bool) -> None:
    """Meet the other processes of the launcher's; does nothing for one process, or a second time.

    Gradients go through NCCL where `gpu`, else through gloo.
    """
    global _group
    if _group or not launched() or int(os.environ["WORLD_SIZE"]) == 1:
        return
    if os.environ.get("MASTER_ADDR") in ("127.0.0.1", "localhost") and sys.platform == "linux":
        # One machine: no name of it need be known to the network
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store, number, size = next(torch.distributed.rendezvous("env://"))
    device = torch.device("cuda", local_rank()) if gpu else None
    backend = "nccl" if gpu else "gloo"
    torch.distributed.init_process_group(backend, store=store, rank=number, world_size=size, device_id=device)
    control = torch.distributed.new_group(backend="gloo", timeout=_PATIENCE)
    _group = _Group(number, size, control, store)


def leave() -> None:
    """Part from the others, all of whom do so too or are gone."""
    global _group
    if _group:
        with suppress(RuntimeError):
            torch.distributed.barrier(_group.control)
            torch.distributed.destroy_process_group()
        _group = None


def replicate(model: nn.Module, device: torch.device, compiled: bool = False) -> nn.Module:
    """The model to call in training: its gradients become the mean over the processes at each backward pass.

    `compiled`: by torch.compile, for any lengths. The parameters stay the model's own either way.
    """
    if compiled:
        model.compile(dynamic=True)
    if not _group:
        return model
    return DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)


def exchanging(replica: nn.Module, wanted: bool) -> AbstractContextManager[None]:
    """Whether the backward pass in here exchanges the gradients, or leaves that to a later one."""
    return nullcontext() if wanted or not isinstance(replica, DistributedDataParallel) else replica.no_sync()


def total(values: Sequence[float]) -> list[float]:
    """Sums over the processes, in float64; the same numbers on all of them."""
    return _reduced(values, torch.distributed.ReduceOp.SUM)


def highest(values: Sequence[float]) -> list[float]:
    """Maxima over the processes; the same numbers on all of them."""
    return _reduced(values, torch.distributed.ReduceOp.MAX)


def _reduced(values: Sequence[float], operation: Any) -> list[float]:
    if not _group:
        return [float(value) for value in values]
    tensor = torch.tensor(values, dtype=torch.float64)
    torch.distributed.all_reduce(tensor, operation, _group.control)
    return [float(value) for value in tensor]


def gather(value: T) -> list[T]:
    """Every process's value, by rank, on all of them; any plain Python value."""
    if not _group:
        return [value]
    found: list[Any] = [None] * _group.size
    torch.distributed.all_gather_object(found, value, _group.control)
    return found


def on_leader(work: Callable[[], T]) -> T:
    """Rank 0 does the work while the others wait, however long, and all have what it returns or its UserError."""
    if not _group:
        return work()
    told: list[Any] = [None, None]
    if _group.rank == 0:
        try:
            told = [work(), None]
        except UserError as error:
            told = [None, error]
    torch.distributed.broadcast_object_list(told, 0, _group.control)
    if told[1] is not None:
        raise told[1]
    return told[0]


def leader_first(work: Callable[[], T]) -> T:
    """Rank 0 does the work while the others wait; then they do it too, and find its files there.

    A UserError of one process is raised in all of them.
    """
    if not _group:
        return work()
    found: list[T] = []

    def attempt() -> UserError | None:
        try:
            found.append(work())
        except UserError as error:
            return error
        return None

    errors = [on_leader(attempt)]
    if not errors[0]:
        errors = gather(attempt() if _group.rank > 0 else None)
    for error in errors:
        if error:  # one process's is everybody's: they go on together or not at all
            raise error
    return found[0]


def wait_for_all() -> None:
    """Go on when every process has come here."""
    if _group:
        torch.distributed.barrier(_group.control)


def announce_stop(number: int) -> None:
    """Let the other processes know, between two collective steps, that the run is to stop by this signal."""
    if _group:
        with suppress(RuntimeError):  # the launcher that holds the store is gone, and the kernel tells its processes
            _group.store.set(_STOP, str(number))


def announced_stop() -> int | None:
    """The signal that another process announced; asked at most a few times a second."""
    if not _group or time.monotonic() - _group.asked < _ASK_EVERY:
        return None
    try:
        _group.asked = time.monotonic()
        return int(_group.store.get(_STOP)) if _group.store.check([_STOP]) else None
    except RuntimeError:
        return None


def forget_stop() -> None:
    """Take the announcement back, before another training in the same processes."""
    wait_for_all()
    if _group and _group.rank == 0:
        _group.store.delete_key(_STOP)
    wait_for_all()


def say(line: str) -> None:
    """A line for the user on stderr, from one of the processes."""
    if rank() == 0:
        print(line, file=sys.stderr, flush=True)


def lost_contact(error: BaseException) -> bool:
    """Whether an exception only says that another process is gone."""
    if not _group or not isinstance(error, RuntimeError):
        return False
    text = str(error).lower()
    return isinstance(error, torch.distributed.DistError) or any(word in text for word in ("gloo", "nccl", "peer"))
