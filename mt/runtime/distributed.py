"""What a process is among its fellows: the only importer of torch.distributed. For one process, no-ops."""

import torch.distributed


def rank() -> int:
    """This process's number, from 0."""
    return torch.distributed.get_rank() if _running() else 0


def world_size() -> int:
    """How many processes train together."""
    return torch.distributed.get_world_size() if _running() else 1


def is_main() -> bool:
    """True in the one process that writes to disk and to the terminal."""
    return rank() == 0


def _running() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def sum_over_ranks(values: list[float]) -> list[float]:
    """The sum of each value over all processes, in float64, the same on each."""
    if not _running():
        return values
    total = torch.tensor(values, dtype=torch.float64)
    torch.distributed.all_reduce(total)
    return [float(value) for value in total]
