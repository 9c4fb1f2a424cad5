"""What a process is among its fellows: the only importer of torch.distributed. For one process, no-ops."""

import torch.distributed


def rank() -> int:
    """This process's number, from 0."""
    return torch.distributed.get_rank() if _running() else 0


def world_size() -> int:
    """How many processes train together."""
    return torch.distributed.get_world_size() if _running() else 1


def _running() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()
