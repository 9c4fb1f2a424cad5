"""What a run needs to go on where it stopped, as plain types."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch

from mt.config import Which
from mt.errors import UserError
from mt.runtime import distributed
from mt.runtime.device import Runtime


@dataclass
class Progress:
    """How far a run is, the same in all processes. Epochs count from 1; `update` is the last one done."""

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


@dataclass
class Recent:
    """Sums since the last log line: one process's share of the losses and tokens, all updates and seconds."""

    smoothed: float = 0.0
    nll: float = 0.0
    real_tokens: float = 0
    padded_tokens: float = 0
    target_tokens: float = 0  # of this share, without skipped updates
    all_target_tokens: float = 0  # of this share
    updates: int = 0
    gradient_norm: float = 0.0
    seconds: float = 0.0  # of updates alone

    SHARES: ClassVar[tuple[str, ...]] = (
        "smoothed",
        "nll",
        "real_tokens",
        "padded_tokens",
        "target_tokens",
        "all_target_tokens",
    )

    def over_processes(self) -> "Recent":
        """With every process's share."""
        sums = distributed.total([getattr(self, name) for name in self.SHARES])
        shares: dict[str, Any] = dict(zip(self.SHARES, sums, strict=True))
        return replace(self, **shares)


def random_states(device: torch.device) -> dict[str, Any]:
    """This process's random generators, as plain types."""
    states = {"torch": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def set_random_states(states: Mapping[str, Any], device: torch.device) -> None:
    """Put back what `random_states` gave."""
    torch.set_rng_state(states["torch"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def seed_process(seed: int, update: int) -> None:
    """Random states of this process's own: equal seeds would drop the same units of every process's sentences."""
    own = np.random.SeedSequence([seed, update, distributed.rank()]).generate_state(1, np.uint64)
    torch.manual_seed(int(own[0] >> np.uint64(1)))


def training_state(
    progress: Progress,
    recent: Recent,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    runtime: Runtime,
    log: Mapping[str, int],
) -> dict[str, Any]:
    """Everything but the weights, of all processes, who all call this. Only types that `weights_only` accepts.

    `log` is how far the run's log had come, see `RunLog.position`.
    """
    own = {"random": random_states(runtime.device), "recent": asdict(recent)}
    return {
        "progress": asdict(progress),
        "optimizer": optimizer.state_dict(),
        "scaler": scaler.state_dict(),
        "processes": distributed.gather(own),
        "log": dict(log),
    }


def restore(
    state: Mapping[str, Any],
    seed: int,
    optimizer: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    runtime: Runtime,
) -> tuple[Progress, Recent, int]:
    """Put everything back that `training_state` took: progress, sums, and how many processes it was taken of.

    Of another number of processes only the random states are new. Raises UserError for what is no such state.
    """
    try:
        progress, processes = Progress(**state["progress"]), list(state["processes"])
        optimizer.load_state_dict(state["optimizer"])
        scaler.load_state_dict(state["scaler"])
        recents = [Recent(**process["recent"]) for process in processes]
        if len(processes) == distributed.world_size():
            set_random_states(processes[distributed.rank()]["random"], runtime.device)
            return progress, recents[distributed.rank()], len(processes)
        seed_process(seed, progress.update)
        own = recents[0]
        for name in Recent.SHARES:
            joint = sum(getattr(recent, name) for recent in recents)
            setattr(own, name, joint if distributed.rank() == 0 else 0)
        return progress, own, len(processes)
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError, AttributeError, OverflowError) as error:
        raise UserError(f"the training state fits no run of this mt: {error!r}".replace("\n", " ")) from error
