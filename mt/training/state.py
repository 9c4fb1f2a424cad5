"""What a run needs to go on where it stopped, as plain types."""

import random
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from mt.config import Which
from mt.runtime.device import Runtime


@dataclass
class Progress:
    """How far a run is. Epochs count from 1; `update` is the last one done."""

    update: int = 0
    epoch: int = 1
    update_in_epoch: int = 0  # done in this epoch
    seconds: float = 0.0  # of training, over all restarts
    target_tokens: int = 0  # trained on
    best: tuple[float, float] | None = None  # (BLEU, minus the unsmoothed loss) of the best validation
    best_update: int = 0
    validations_without_better: int = 0
    skipped_in_a_row: int = 0  # updates whose gradient was not finite
    skipped: int = 0
    validated: list[tuple[int, float]] = field(default_factory=list)  # (update, BLEU)

    def to_average(self, count: int, which: Which) -> list[int]:
        """The updates, in order, whose checkpoints the run's average is made of."""
        if which is Which.last:
            return [update for update, _ in self.validated[-count:]]
        best = sorted(self.validated, key=lambda entry: -entry[1])[:count]
        return sorted(update for update, _ in best)


def training_state(
    progress: Progress, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, runtime: Runtime
) -> dict[str, Any]:
    """Everything but the weights. Only types that torch.load(weights_only=True) accepts."""
    state = {
        "progress": asdict(progress),
        "optimizer": optimizer.state_dict(),
        "scaler": scaler.state_dict(),
        "torch_random": torch.get_rng_state(),
        "python_random": random.getstate(),
    }
    if runtime.device.type == "cuda":
        state["cuda_random"] = torch.cuda.get_rng_state(runtime.device)
    return state


def restore(
    state: dict[str, Any], optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, runtime: Runtime
) -> Progress:
    """Put everything back that `training_state` took; the progress is returned."""
    optimizer.load_state_dict(state["optimizer"])
    scaler.load_state_dict(state["scaler"])
    torch.set_rng_state(state["torch_random"])
    random.setstate(state["python_random"])
    if runtime.device.type == "cuda" and "cuda_random" in state:
        torch.cuda.set_rng_state(state["cuda_random"], runtime.device)
    progress = Progress(**state["progress"])
    return progress
