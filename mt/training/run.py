"""A run: what its steps share, how it begins, and what may change when it goes on."""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from mt.checkpoint import Checkpoint, load_parameters
from mt.checkpoint_store import CheckpointStore
from mt.config import TrainJob
from mt.data.module import Epoch, Prepared
from mt.errors import UserError
from mt.jobs import HARMLESS, walk
from mt.model.transformer import Transformer
from mt.reporting.environment import describe_environment
from mt.reporting.runlog import RunLog
from mt.runtime import distributed
from mt.runtime.device import Runtime
from mt.runtime.stop import Interrupted, StopRequest
from mt.training.schedule import make_optimizer
from mt.training.state import Progress, Recent, restore, seed_process

MANY_TO_SAMPLE = 500_000
SAMPLING_SECONDS, SAMPLING_BYTES = 250e-6, 1400  # a pair, at the peak; measured on one core with Multi30k


@dataclass
class Run:
    """All that the steps of a training share."""

    folder: Path
    job: TrainJob
    prepared: Prepared
    runtime: Runtime
    log: RunLog
    store: CheckpointStore
    model: Transformer
    replica: nn.Module  # the model as training calls it: gradients become those of all processes
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    progress: Progress
    recent: Recent
    ticked: float = field(default_factory=time.monotonic)

    def epoch(self, stop: StopRequest) -> Epoch | None:
        """The epoch's sentences; None, in all processes, where drawing their subwords was cut short by a signal."""
        job, epoch = self.job, None
        with suppress(Interrupted):
            sampling = job.tokenizer.sampling
            epoch = self.prepared.epoch(sampling, job.seed, self.progress.epoch, stop.give_up_if_wanted)
        stop.agree(0)
        return epoch if stop.number is None else None

    def tick(self) -> float:
        """Seconds since the last tick."""
        now = time.monotonic()
        passed, self.ticked = now - self.ticked, now
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
    harmless = HARMLESS - {"train.max_updates"} if before.optim.cooldown else HARMLESS
    if refused := changed.keys() - harmless:
        differences = "; ".join(changed[name] for name in sorted(refused))
        raise UserError(
            f"{folder} was begun with other settings ({differences}): give this run another run.name, or remove it"
        )
    return [line for name, line in changed.items() if not name.startswith("run.")]


def start_run(
    folder: Path,
    job: TrainJob,
    prepared: Prepared,
    runtime: Runtime,
    log: RunLog,
    store: CheckpointStore,
    start_from: Checkpoint | None,
    state: Mapping[str, Any] | None,
) -> Run:
    """A run at its beginning, which may be another run's weights, or with a `state` where that checkpoint left it.

    Raises UserError for an impossible model.
    """
    torch.manual_seed(job.seed)
    tokenizers = prepared.tokenizers
    try:
        model = Transformer(job.model, tokenizers.source.size, tokenizers.target.size)
    except ValueError as error:
        raise UserError(str(error)) from error
    if distributed.world_size() > 1:
        seed_process(job.seed, 0)
    if start_from:
        load_parameters(model, start_from.load_weights(), start_from.folder)
    model.to(runtime.device).train()
    optimizer = make_optimizer(model, job.optim)
    scaler = torch.amp.GradScaler(runtime.device.type, enabled=runtime.products == torch.float16)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    log.info(f"model: {parameters:,} parameters, vocabulary {tokenizers.target.size:,}; {runtime.describe()}")
    processes = distributed.world_size()
    log.info(
        f"data: {len(prepared.source):,} training pairs, {len(prepared.dev_source):,} for development; an update is up"
        f" to {job.train.update_tokens:,} target tokens, over all {processes} process{'es' if processes > 1 else ''}"
    )
    log.info(f"environment: {describe_environment()}")
    if job.tokenizer.sampling and len(prepared.source) >= MANY_TO_SAMPLE:
        minutes = len(prepared.source) * SAMPLING_SECONDS / 60
        memory = len(prepared.source) * SAMPLING_BYTES * distributed.local_world_size()  # each process draws all
        log.warning(
            f"warning: tokenizer.sampling draws all {len(prepared.source):,} pairs anew before each epoch: about"
            f" {minutes:,.0f} minutes and {memory / 2**30:,.1f} GiB on this machine; 0 is off"
        )
    progress, recent = Progress(), Recent()
    if start_from and state is not None:
        corpus = start_from.meta.get("corpus")
        if corpus != prepared.folder.name:
            raise UserError(
                f"{start_from.folder} was trained on the prepared corpus {corpus}, and the text or its"
                f" preparation now gives {prepared.folder.name}: put it back, or begin another run.name"
            )
        progress, recent, before = restore(state, job.seed, optimizer, scaler, runtime)
        log.info(f"continuing from {start_from.folder.name}, epoch {progress.epoch}")
        if before != processes:
            log.info(
                f"saved by {before} processes, now {processes}: the same updates follow, but for dropout,"
                " which draws anew"
            )
    elif start_from:
        log.info(f"weights and tokenizers of {start_from.folder}")
    replica = distributed.replicate(model, runtime.device, job.train.compile)
    return Run(folder, job, prepared, runtime, log, store, model, replica, optimizer, scaler, progress, recent)
