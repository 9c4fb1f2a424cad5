"""`mt train`: from a job to a scored run, in reading order."""

import json
import math
import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import yaml

from mt.checkpoint import Checkpoint, write_checkpoint
from mt.checkpoint_store import CheckpointStore, checkpoint_name
from mt.config import TrainJob
from mt.data.preparation import prepare
from mt.data.sources import Sources, locate
from mt.errors import UserError
from mt.evaluation.evaluate import held_out_files
from mt.evaluation.metrics import check_language
from mt.jobs import to_plain
from mt.reporting.runlog import RunLog
from mt.runtime import distributed
from mt.runtime.device import Runtime, peak_memory, start
from mt.runtime.files import only_writer, write_whole
from mt.runtime.stop import Interrupted, StopRequest
from mt.training.run import Run, check_same_run, start_run
from mt.training.scoring import score_run
from mt.training.state import Recent, training_state
from mt.training.update import train_update, try_largest_batch
from mt.training.validation import perplexity, validate

SAVED = ".saved"  # in the run's folder: there was a checkpoint once


def train(job: TrainJob) -> int:
    """Train the job's run, or go on with it, and score its test sets; the exit code.

    0: finished, now or before. 128 + n: stopped by signal n, after saving. Raises UserError, DataUnavailable.
    All processes that torch's launcher started call this together; the first of them writes.
    """
    assert job.run.name, "the run's name is made when the job is"
    run_folder = Path(job.run.root) / job.run.name
    check_language(job.data.target)
    runtime = start(job.train.device, job.train.precision, job.train.threads, together=True)
    sources = distributed.leader_first(lambda: locate(job.data, distributed.say))
    lock = only_writer(run_folder, report=distributed.say) if distributed.rank() == 0 else nullcontext()
    with lock:
        distributed.wait_for_all()
        if not all(distributed.gather((run_folder / ".lock").exists())):
            raise UserError(f"{run_folder} is not seen by all processes: run.root must lie where every machine sees it")
        return _train(job, run_folder, sources, runtime)


def _train(job: TrainJob, run_folder: Path, sources: Sources, runtime: Runtime) -> int:
    store = CheckpointStore(run_folder / "checkpoints")
    found, remarks = distributed.on_leader(lambda: _newest(run_folder, store))
    resumed = Checkpoint.open(store.folder / found) if found else None
    begins_from = None if resumed or not job.train.init_from else distributed.on_leader(lambda: _beginning(job))
    changed = check_same_run(run_folder, resumed.config, job) if resumed else []
    state = resumed.load_state() if resumed else None
    with _open_log(run_folder, state) as log:
        for remark in remarks:
            log.warning(remark)
        for line in changed:
            log.info(f"changed since the run began: {line}")
        start_from = resumed or (Checkpoint.open(begins_from) if begins_from else None)
        tokenizers_from = start_from.folder if start_from and job.train.init_from else None
        prepared = distributed.leader_first(
            lambda: prepare(sources, job.data, job.tokenizer, job.seed, log.info, tokenizers_from)
        )
        if len(set(distributed.gather(prepared.folder.name))) > 1:
            raise UserError("the processes see different texts: data/ must lie where every machine sees it")
        run = start_run(run_folder, job, prepared, runtime, log, store, start_from, state)
        if resumed:
            _settle_best(run)
        if run.finished() and distributed.on_leader(store.index).get("scored") == found:
            why = "its patience is at an end" if run.out_of_patience() else "its budget is used"
            log.info(f"{run_folder} is finished, {why}: nothing to do (mt evaluate scores it again)")
            return 0
        if distributed.rank() == 0:
            _write_down(run, sources)
        with StopRequest() as stop:
            try:
                _train_updates(run, stop)
            except RuntimeError as error:
                if stop.heard is None or not distributed.lost_contact(error):
                    raise
                log.warning(f"lost contact with another process; the last checkpoint is in {store.folder}")
                return 1  # that one has said why, and the launcher ends the rest
        if stop.number is not None:
            log.info(f"stopped by signal {stop.number} at update {run.progress.update}; the same command goes on")
            return 128 + stop.number
        score_run(run, sources)
    return 0


def _newest(run_folder: Path, store: CheckpointStore) -> tuple[str | None, list[str]]:
    """The name of the checkpoint to go on from, if there is one, and what there is to say about it."""
    remarks: list[str] = []
    store.clean()
    newest = store.newest(remarks.append)
    if not newest and (run_folder / SAVED).exists():
        raise UserError(
            f"{run_folder} has saved checkpoints before, and they are gone from {store.folder}: put them back, or"
            f" remove {run_folder} to begin again"
        )
    return newest.folder.name if newest else None, remarks


def _beginning(job: TrainJob) -> str:
    """The folder that train.init_from means."""
    assert job.train.init_from
    return str(Checkpoint.open(job.train.init_from, "train.init_from").folder)


def _settle_best(run: Run) -> None:
    """The index names the best checkpoint that the run's state knows of, or none where that one is gone."""
    progress, store = run.progress, run.store

    def settle() -> bool:
        name = checkpoint_name(progress.best_update)
        there = progress.best_update > 0 and store.sound(name)
        if store.index().get("best") != (name if there else None):
            store.set(best=name if there else None)
        return there

    if not distributed.on_leader(settle) and progress.best_update:
        run.log.warning(
            f"the best checkpoint, of update {progress.best_update}, is damaged or gone: the next is the best"
        )
        progress.best, progress.best_update = None, 0


def _open_log(run_folder: Path, state: dict[str, Any] | None) -> RunLog:
    if distributed.rank() > 0:
        return RunLog(None, console=False)
    position = state.get("log") if state else {}
    if not isinstance(position, dict) or not all(isinstance(size, int) for size in position.values()):
        raise UserError(f"the training state in {run_folder} is not one of this mt: begin another run.name")
    return RunLog(run_folder, position)


def _write_down(run: Run, sources: Sources) -> None:
    """What the run is made of, beside its checkpoints."""
    text = yaml.safe_dump(to_plain(run.job), sort_keys=False, allow_unicode=True)
    write_whole(run.folder / "config.yaml", text)
    cleaning = json.dumps(run.prepared.cleaning, indent=1, ensure_ascii=False)
    write_whole(run.folder / "cleaning.json", cleaning + "\n")
    if sources.hold_out_dev:
        for path, lines in zip(
            held_out_files(run.folder), (run.prepared.dev_source, run.prepared.dev_target), strict=True
        ):
            write_whole(path, "".join(line + "\n" for line in lines))


def _train_updates(run: Run, stop: StopRequest) -> None:
    """Update until the budget is used, patience is at its end, or a signal came; all processes decide alike."""
    job, progress = run.job, run.progress
    tried = False
    run.tick()
    stop.agree(0)
    with run.log.progress(100, start=round(100 * run.done_share()), unit="%") as bar:
        if progress.update and _validation_is_due(run) and not run.finished():
            _validate_and_save(run, stop)  # a signal cut it short
        while not run.finished() and stop.number is None:
            epoch = run.epoch(stop)
            if epoch is None:
                break
            plan = epoch.plan(job.seed, progress.epoch, job.train.update_tokens)
            assert progress.update_in_epoch < len(plan), "a resumed run has the corpus that it began with"
            if not tried:
                try_largest_batch(run, epoch, plan)
                tried = True
            for update in plan[progress.update_in_epoch :]:
                began = time.monotonic()
                train_update(run, epoch, update)
                progress.update_in_epoch += 1
                if progress.update_in_epoch == len(plan):
                    progress.epoch, progress.update_in_epoch = progress.epoch + 1, 0
                run.recent.seconds += time.monotonic() - began
                progress.seconds = stop.agree(progress.seconds + run.tick())
                _after_update(run, stop)
                done = 100 * min(1.0, run.done_share())
                bar.update(done, f", epoch {progress.epoch}, update {progress.update}")
                if run.finished() or stop.number is not None:
                    break
    if stop.number is None and progress.update not in dict(progress.validated):
        _validate_and_save(run, stop)
    if distributed.on_leader(run.store.index).get("last") != checkpoint_name(progress.update):
        _save(run, stop)
    stop.agree(0)


def _after_update(run: Run, stop: StopRequest) -> None:
    """Log, validate and save where it is due."""
    progress, train = run.progress, run.job.train
    if progress.update % train.log_every == 0:
        _log_training(run)
    if stop.number is not None:
        return  # a validation that is due comes when the run goes on
    if _validation_is_due(run):
        _validate_and_save(run, stop)
    elif train.save_every and progress.update % train.save_every == 0:
        _save(run, stop)


def _validation_is_due(run: Run) -> bool:
    progress, every = run.progress, run.job.train.validate_every
    due = progress.update % every == 0 if every else progress.update_in_epoch == 0
    return due and progress.update not in dict(progress.validated)


def _log_training(run: Run) -> None:
    recent, progress = run.recent.over_processes(), run.progress
    run.recent = Recent()
    tokens = recent.target_tokens or math.nan  # none where every update was skipped
    values = {
        "loss": recent.smoothed / tokens,
        "nll": recent.nll / tokens,
        "perplexity": perplexity(recent.nll / tokens),
        "learning_rate": run.optimizer.param_groups[0]["lr"],
        "gradient_norm": recent.gradient_norm / max(1, recent.updates),
        "target_tokens": progress.target_tokens,
        "target_tokens_per_second": recent.all_target_tokens / recent.seconds,
        "padding_share": 1 - recent.real_tokens / max(1, recent.padded_tokens),
        "memory_gib": peak_memory(run.runtime.device),
        "epoch": progress.epoch,
    }
    run.log.scalars(progress.update, values, "train")
    run.log.info(
        f"epoch {progress.epoch}, update {progress.update}: loss {values['loss']:.3f}, perplexity"
        f" {values['perplexity']:.2f}, rate {values['learning_rate']:.2e}, norm {values['gradient_norm']:.2f},"
        f" {values['target_tokens_per_second']:,.0f} target tokens/s, padding {values['padding_share']:.1%}"
    )


def _validate_and_save(run: Run, stop: StopRequest) -> None:
    """Validate, unless a signal comes meanwhile, and save."""
    try:
        result = validate(run, stop)
    except Interrupted:
        stop.agree(0)
        return
    progress, beam = run.progress, run.job.train.validate_beam
    kind = "greedy" if beam == 1 else f"beam{beam}"
    better = result.better_than(progress.best)
    if better:
        progress.best, progress.best_update = (result.bleu, -result.nll), progress.update
    progress.validations_without_better = 0 if better else progress.validations_without_better + 1
    progress.validated.append((progress.update, result.bleu))
    values = {
        "loss": result.loss,
        "nll": result.nll,
        "perplexity": result.perplexity,
        f"bleu_{kind}": result.bleu,
    }
    run.log.scalars(progress.update, values, "validation")
    for number, (source, translation, reference) in enumerate(result.samples):
        run.log.text(progress.update, f"sample_{number}", f"{source}\n\n{translation}\n\n{reference}")
    run.log.info(
        f"validation at update {progress.update}: perplexity {result.perplexity:.2f}, BLEU {result.bleu:.2f}"
        f" ({kind}, {result.sentences} sentences){', the best so far' if better else ''}"
    )
    _save(run, stop)


def _save(run: Run, stop: StopRequest) -> None:
    """A checkpoint of this moment; the ones that nothing needs any more go."""
    progress = run.progress
    progress.seconds = stop.agree(progress.seconds + run.tick())
    state = training_state(progress, run.recent, run.optimizer, run.scaler, run.runtime, run.log.position())
    if distributed.rank() == 0:
        _write(run, state)
    distributed.wait_for_all()  # here, where waiting has no limit


def _write(run: Run, state: Mapping[str, Any]) -> None:
    progress, store, train = run.progress, run.store, run.job.train
    began = time.monotonic()
    name, before = checkpoint_name(progress.update), store.index().get("last")
    score = dict(progress.validated).get(progress.update)
    corpus = run.prepared.folder.name
    meta = {"update": progress.update, "epoch": progress.epoch, "score": score, "corpus": corpus}
    weights = dict(run.model.named_parameters())
    write_checkpoint(store.folder / name, weights, run.job, run.prepared.tokenizers, meta, state)
    (run.folder / SAVED).touch()
    best = {"best": checkpoint_name(progress.best_update)} if progress.best_update else {}
    previous = {"previous": before} if before != name else {}  # should the last one come to harm
    store.set(last=name, average=None, **previous, **best)  # an average of earlier ones is not this run's any more
    needed = {checkpoint_name(update) for update in progress.to_average(train.average, train.average_of)}
    store.delete([name for name in store.names() if name not in needed])
    size = sum(path.stat().st_size for path in (store.folder / name).iterdir())
    run.log.info(f"saved {name}: {size / 1e6:,.1f} MB in {time.monotonic() - began:.2f} s")
