"""A run: what its steps share, how it begins, and what may change when it goes on."""

import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

from mt.checkpoint import Checkpoint, CheckpointStore, load_parameters
from mt.config import HARMLESS, TrainJob
from mt.data.module import Prepared
from mt.errors import UserError
from mt.jobs import walk
from mt.model.transformer import Transformer
from mt.reporting.environment import describe_environment
from mt.reporting.runlog import RunLog
from mt.runtime import distributed
from mt.runtime.device import Runtime
from mt.training.schedule import make_optimizer
from mt.training.state import Progress, restore


@dataclass
class Recent:
    """Sums since the last log line."""

    updates: int = 0
    smoothed: float = 0.0
    nll: float = 0.0
    gradient_norm: float = 0.0
    target_tokens: int = 0
    all_target_tokens: int = 0  # those of skipped updates too
    real_tokens: int = 0
    padded_tokens: int = 0
    seconds: float = 0.0  # of updates alone


@dataclass
class Run:
    """All that the steps of a training share."""

    job: TrainJob
    prepared: Prepared
    runtime: Runtime
    log: RunLog
    store: CheckpointStore
    model: Transformer
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    progress: Progress
    recent: Recent = field(default_factory=Recent)
    ticked: float = field(default_factory=time.monotonic)

    def tick(self) -> float:
        """Count the time since the last tick as training; its seconds."""
        now = time.monotonic()
        passed, self.ticked = now - self.ticked, now
        self.progress.seconds += passed
        return passed

    def done_share(self) -> float:
        """How much of the budget is used, 1 for all of it: the largest share of any limit."""
        train, progress = self.job.train, self.progress
        shares = [
            (progress.update, train.max_updates),
            (progress.epoch - 1, train.max_epochs),
            (progress.seconds / 60, train.max_minutes),
        ]
        return max(done / limit for done, limit in shares if limit is not None)

    def out_of_patience(self) -> bool:
        patience = self.job.train.patience
        return patience > 0 and self.progress.validations_without_better >= patience

    def finished(self) -> bool:
        return self.done_share() >= 1 or self.out_of_patience()


def check_same_run(folder: Path, before: TrainJob, job: TrainJob) -> list[str]:
    """What changed since the run saved something, if all of it may; UserError with the difference if not."""
    pairs = zip(walk(before), walk(job), strict=True)
    changed = {name: f"{name}: {old} -> {new}" for (name, _, old), (_, _, new) in pairs if old != new}
    if refused := changed.keys() - HARMLESS:
        differences = "; ".join(changed[name] for name in sorted(refused))
        raise UserError(
            f"{folder} was begun with other settings ({differences}): give this run another run.name, or remove it"
        )
    return [line for name, line in changed.items() if not name.startswith("run.")]


def start_run(
    job: TrainJob,
    prepared: Prepared,
    runtime: Runtime,
    log: RunLog,
    store: CheckpointStore,
    resumed: Checkpoint | None,
) -> Run:
    """A run at its beginning, or where the resumed checkpoint left it. Raises UserError for an impossible model."""
    torch.manual_seed(job.seed)
    tokenizers = prepared.tokenizers
    try:
        model = Transformer(job.model, tokenizers.source.size, tokenizers.target.size)
    except ValueError as error:
        raise UserError(str(error)) from error
    model.to(runtime.device).train()
    optimizer = make_optimizer(model, job.optim)
    scaler = torch.amp.GradScaler(runtime.device.type, enabled=runtime.products == torch.float16)
    progress = Progress()
    if resumed:
        if resumed.meta.get("corpus") != prepared.folder.name:
            raise UserError(
                f"{resumed.folder} was trained on the prepared corpus {resumed.meta.get('corpus')}, and the text or its"
                f" preparation now gives {prepared.folder.name}: put it back, or begin another run.name"
            )
        load_parameters(model, resumed.load_weights(), resumed.folder)
        progress = restore(resumed.load_state(), optimizer, scaler, runtime)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    log.info(f"model: {parameters:,} parameters, vocabulary {tokenizers.target.size:,}; {runtime.describe()}")
    log.info(
        f"data: {len(prepared.source):,} training pairs, {len(prepared.dev_source):,} for development; an update"
        f" is up to {job.train.update_tokens:,} target tokens, over all processes (here {distributed.world_size()})"
    )
    log.info(f"environment: {describe_environment()}")
    if resumed:
        log.info(f"continuing from {resumed.folder.name}, epoch {progress.epoch}")
    return Run(job, prepared, runtime, log, store, model, optimizer, scaler, progress)
