"""The training loop: when to update, log, validate, save and stop. All processes make the same decisions."""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from mt.config.schema import TrainConfig, TrainingConfig
from mt.data.batching import Epoch, Update
from mt.data.corpus import PreparedCorpus
from mt.errors import UserError
from mt.reporting.runlog import RunLog
from mt.run_folder import RunFolder
from mt.runtime import distributed
from mt.runtime.device import explain_out_of_memory, peak_memory
from mt.runtime.stop import Interrupted, StopRequest
from mt.training.metrics import TrainingMetrics, in_words
from mt.training.schedule import learning_rate
from mt.training.state import TrainerState
from mt.training.step import Learner, StepMetrics, train_step, try_batch
from mt.training.validation import Validator

GIVE_UP_AFTER = 10  # consecutive updates with non-finite gradients


def run_updates(
    config: TrainConfig,
    corpus: PreparedCorpus,
    learner: Learner,
    state: TrainerState,
    validator: Validator,
    save: Callable[[], None],
    log: RunLog,
    stop: StopRequest,
) -> None:
    """Train until the budget is spent or patience runs out, then validate; or until a signal arrives."""
    train, rank, world_size = config.train, distributed.rank(), distributed.world_size()
    explain_memory = partial(explain_out_of_memory, "train.batch_tokens", train.batch_tokens)

    def validate_and_save() -> None:
        with suppress(Interrupted), explain_memory():  # a resumed run repeats a validation that a signal stopped
            validator.validate(state, log, stop)
            save()
        state.seconds = stop.agree(state.seconds)

    stop.agree()
    if state.update and _validation_is_due(state, train) and not state.finished(train):
        validate_and_save()
    tried = False
    while not state.finished(train) and stop.number is None:
        epoch = _next_epoch(config, corpus, state, stop)
        if epoch is None:
            break
        if not tried:
            with explain_memory():
                try_batch(learner, epoch.largest(train.batch_tokens, rank, world_size), config.optim.label_smoothing)
            tried = True
        began = time.monotonic()
        for update in epoch.updates(state.update_in_epoch, train.batch_tokens, rank, world_size):
            lr = learning_rate(state.update + 1, config.optim, config.model.d_model, train.max_updates)
            with explain_memory():
                step = train_step(learner, update, lr, config.optim)
            state.advance(step, update.target_tokens, len(epoch), time.monotonic() - began)
            if not step.finite:
                _report_skipped(state, update, step, corpus, RunFolder(config.run.folder), log)
            state.seconds = stop.agree(state.seconds)
            if state.update % train.log_every == 0:
                _log_metrics(state, lr, peak_memory(learner.runtime.device), log)
            if stop.number is None and _validation_is_due(state, train):
                validate_and_save()
            elif stop.number is None and train.save_every and state.update % train.save_every == 0:
                save()
            log.progress(100 * min(1.0, state.share_done(train)), f", epoch {state.epoch}, update {state.update}")
            if state.finished(train) or stop.number is not None:
                break
            began = time.monotonic()
    log.end_progress()
    if stop.number is None and not state.was_validated():
        validate_and_save()


def _next_epoch(config: TrainConfig, corpus: PreparedCorpus, state: TrainerState, stop: StopRequest) -> Epoch | None:
    """The next epoch; None, in all processes, if a signal arrived while its subwords were sampled."""
    epoch, sampling = None, config.tokenizer.sampling
    with suppress(Interrupted):
        epoch = corpus.epoch(state.epoch, config.seed, config.train.update_tokens, sampling, stop.raise_if_wanted)
        assert state.update_in_epoch < len(epoch), "a resumed run has the same corpus"
    state.seconds = stop.agree(state.seconds)
    return epoch if stop.number is None else None


def _validation_is_due(state: TrainerState, train: TrainingConfig) -> bool:
    due = state.update % train.validate_every == 0 if train.validate_every else state.update_in_epoch == 0
    return due and not state.was_validated()


def _log_metrics(state: TrainerState, lr: float, memory: float, log: RunLog) -> None:
    values = state.metrics.values(lr, state.target_tokens, memory, state.epoch)
    state.metrics = TrainingMetrics()
    log.scalars(state.update, values, "train")
    log.info(f"epoch {state.epoch}, update {state.update}: {in_words(values)}")


def _report_skipped(
    state: TrainerState, update: Update, step: StepMetrics, corpus: PreparedCorpus, run: RunFolder, log: RunLog
) -> None:
    """Report a skipped update; after GIVE_UP_AFTER in a row, raise UserError with the lines of the last one."""
    log.warning(f"update {state.update} skipped: its gradient is not finite ({state.skipped} in total)")
    if state.skipped_in_a_row < GIVE_UP_AFTER:
        return
    shares = [(batch, loss) for batch, loss in zip(update.batches, step.losses, strict=True) if batch.target_tokens]
    own = [(corpus.where(int(row)), math.isfinite(loss)) for batch, loss in shares for row in batch.sentences]
    everything = [entry for part in distributed.all_gather(own) for entry in part]
    lines = [line for line, finite in everything if not finite] or [line for line, _ in everything]
    if distributed.rank() == 0:
        run.not_finite.write_text("".join(line + "\n" for line in lines), encoding="utf-8", errors="surrogateescape")
    raise UserError(
        f"{GIVE_UP_AFTER} updates in a row had non-finite gradients, the last one on {'; '.join(lines[:3])}"
        f" (all its lines: {run.not_finite}): correct or remove faulty lines; if there are none, lower optim.factor or"
        f" optim.peak_lr, or raise optim.warmup_steps; earlier checkpoints are in {run.checkpoints}"
    )
