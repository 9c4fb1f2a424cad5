"""The trainer state (all but the weights), and its form in training_state.pt."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from mt.config.schema import TrainingConfig, Which
from mt.errors import UserError
from mt.run_folder import checkpoint_name
from mt.runtime import distributed
from mt.runtime.device import get_random_states, seed_process, set_random_states
from mt.training.metrics import SHARES, TrainingMetrics
from mt.training.step import Learner, StepMetrics

# Names in training_state.pt that differ from the fields of TrainingMetrics
_NAMES_ON_DISK = {"loss": "smoothed", "tokens": "real_tokens", "cells": "padded_tokens", "grad_norm": "gradient_norm"}


@dataclass
class TrainerState:
    """The progress of a run; only `metrics` differs by process. Epochs start at 1; `update` is the last one done."""

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
    metrics: TrainingMetrics = field(default_factory=TrainingMetrics)  # of this process, since the last log line

    def advance(self, step: StepMetrics, target_tokens: int, updates_in_epoch: int, seconds: float) -> None:
        """Count one update, with its target tokens (of all processes) and its seconds."""
        self.update += 1
        self.metrics.add(step, seconds)
        if step.finite:
            self.target_tokens += target_tokens
            self.skipped_in_a_row = 0
        else:
            self.skipped += 1
            self.skipped_in_a_row += 1
        self.update_in_epoch += 1
        if self.update_in_epoch == updates_in_epoch:
            self.epoch, self.update_in_epoch = self.epoch + 1, 0

    def record(self, bleu: float, nll: float) -> bool:
        """Record a validation; returns whether it is the best so far. If BLEU is equal, the lower loss wins."""
        score = bleu, -nll
        better = math.isfinite(nll) and math.isfinite(bleu) and (self.best is None or score > self.best)
        if better:
            self.best, self.best_update = score, self.update
        self.validations_without_better = 0 if better else self.validations_without_better + 1
        self.validated.append((self.update, bleu))
        return better

    def was_validated(self) -> bool:
        """Whether the last update was validated."""
        return self.update in dict(self.validated)

    def share_done(self, train: TrainingConfig) -> float:
        """The fraction of the budget that is spent: the largest among the limits, at least 1 at the end."""
        limits = train.max_updates, train.max_epochs, train.max_minutes
        done = self.update, self.epoch - 1, self.seconds / 60
        return max(spent / limit for spent, limit in zip(done, limits, strict=True) if limit is not None)

    def out_of_patience(self, train: TrainingConfig) -> bool:
        return 0 < train.patience <= self.validations_without_better

    def finished(self, train: TrainingConfig) -> bool:
        """Whether the budget is spent, or patience has run out."""
        return self.share_done(train) >= 1 or self.out_of_patience(train)

    def to_average(self, train: TrainingConfig) -> list[str]:
        """The checkpoints, in order, that are averaged at the end of the run."""
        best_first = sorted(self.validated, key=lambda entry: -entry[1])
        chosen = self.validated[-train.average :] if train.average_of is Which.last else best_first[: train.average]
        return [checkpoint_name(update) for update in sorted(update for update, _ in chosen)]


def pack(state: TrainerState, learner: Learner, log: Mapping[str, int]) -> dict[str, Any]:
    """The trainer state in types that `weights_only` accepts. All processes call this. `log`: `RunLog.position`."""
    progress = asdict(state)
    sums = {_NAMES_ON_DISK.get(name, name): value for name, value in progress.pop("metrics").items()}
    processes = distributed.all_gather({"random": get_random_states(learner.runtime.device), "recent": sums})
    states = {"optimizer": learner.optimizer.state_dict(), "scaler": learner.scaler.state_dict()}
    return {"progress": progress, **states, "processes": processes, "log": dict(log)}


def restore(packed: Mapping[str, Any], seed: int, learner: Learner) -> tuple[TrainerState, int]:
    """Restore the output of `pack`; returns the trainer state and the number of processes that saved it."""
    names = {item.name: _NAMES_ON_DISK.get(item.name, item.name) for item in fields(TrainingMetrics)}
    try:
        processes = list(packed["processes"])
        learner.optimizer.load_state_dict(packed["optimizer"])
        learner.scaler.load_state_dict(packed["scaler"])
        all_metrics = [
            TrainingMetrics(**{name: each["recent"].get(on_disk, 0) for name, on_disk in names.items()})
            for each in processes
        ]
        same = len(processes) == distributed.world_size()
        metrics = all_metrics[distributed.rank() if same else 0]
        state = TrainerState(**packed["progress"], metrics=metrics)
        if same:
            set_random_states(processes[distributed.rank()]["random"], learner.runtime.device)
        else:
            seed_process(seed, state.update)
            for name in SHARES:
                total = sum(getattr(each, name) for each in all_metrics)
                setattr(metrics, name, total if distributed.rank() == 0 else 0)
        return state, len(processes)
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError, AttributeError, OverflowError) as error:
        raise UserError(f"the training state does not fit this version of mt: {error!r}".replace("\n", " ")) from error
