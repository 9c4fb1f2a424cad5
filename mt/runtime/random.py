"""The random generators of this process."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from mt.runtime import distributed


def get_random_states(device: torch.device) -> dict[str, Any]:
    """The states of this process's random generators, as plain types."""
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
    """Give each process its own random state, because equal ones would drop the same units on all processes."""
    own = np.random.SeedSequence([seed, update, distributed.rank()]).generate_state(1, np.uint64)
    torch.manual_seed(int(own[0] >> np.uint64(1)))
