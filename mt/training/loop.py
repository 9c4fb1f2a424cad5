"""`mt train`: from a job to a scored run, in reading order."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import torch
import yaml

from mt.checkpoint import Checkpoint, CheckpointStore
from mt.config import TrainJob
from mt.data.batching import Indices
from mt.data.cleaning import overlap
from mt.data.module import Epoch, prepare
from mt.data.sources import Sources, locate
from mt.data.text import read_pairs
from mt.data.tokenizer import PAD
from mt.decoding.translator import Translator
from mt.errors import UserError
from mt.evaluation.evaluate import EvaluationSet, held_out_files, own_test_sets, score_sets
from mt.evaluation.metrics import check_language, table
from mt.jobs import to_plain
from mt.reporting.runlog import RunLog
from mt.runtime import distributed
from mt.runtime.device import Runtime, peak_memory, start
from mt.runtime.files import only_writer, write_whole
from mt.runtime.signals import StopRequest
from mt.training.loss import label_smoothed_loss
from mt.training.run import Recent, Run, check_same_run, start_run
from mt.training.schedule import learning_rate
from mt.training.state import training_state
from mt.training.validation import perplexity, validate

GIVE_UP_AFTER = 10  # updates in a row whose gradient is not finite


def train(job: TrainJob) -> int:
    """Train the job's run, or go on with it, and score its test sets; the exit code.

    0: finished, now or before. 128 + n: stopped by signal n, after saving. Raises UserError, DataUnavailable.
    """
    assert job.run.name, "the run's name is made when the job is"
    run_folder = Path(job.run.root) / job.run.name
    check_language(job.data.target)
    runtime = start(job.train.device, job.train.precision, job.train.threads)
    sources = locate(job.data, lambda line: print(line, file=sys.stderr, flush=True))
    with only_writer(run_folder):
        return _train(job, run_folder, sources, runtime)


def _train(job: TrainJob, run_folder: Path, sources: Sources, runtime: Runtime) -> int:
    store = CheckpointStore(run_folder / "checkpoints")
    store.clean()
    last = store.index().get("last")
    resumed = Checkpoint.open(store.folder / last) if last else None
    changed = check_same_run(run_folder, resumed.config, job) if resumed else []
    with RunLog(run_folder, purge_from=resumed.meta["update"] if resumed else 0) as log:
        write_whole(run_folder / "config.yaml", yaml.safe_dump(to_plain(job), sort_keys=False, allow_unicode=True))
        for line in changed:
            log.info(f"changed since the run began: {line}")
        prepared = prepare(sources, job.data, job.tokenizer, job.seed, log.info)
        write_whole(run_folder / "cleaning.json", json.dumps(prepared.cleaning, indent=1, ensure_ascii=False) + "\n")
        run = start_run(job, prepared, runtime, log, store, resumed)
        if run.finished() and store.index().get("scored") == last:
            why = "its patience is at an end" if run.out_of_patience() else "its budget is used"
            log.info(f"{run_folder} is finished, {why}: nothing to do (mt evaluate scores it again)")
            return 0
        if sources.hold_out_dev:
            for path, lines in zip(held_out_files(run_folder), (prepared.dev_source, prepared.dev_target), strict=True):
                write_whole(path, "".join(line + "\n" for line in lines))
        with StopRequest() as stop:
            _train_updates(run, stop)
        if stop.number is not None:
            log.info(f"stopped by signal {stop.number} at update {run.progress.update}; the same command goes on")
            return 128 + stop.number
        _score(run, sources, run_folder)
    return 0


def _train_updates(run: Run, stop: StopRequest) -> None:
    """Update until the budget is used, patience is at its end, or a signal came."""
    job, progress = run.job, run.progress
    run.tick()
    with run.log.progress(100, start=round(100 * run.done_share()), unit="%") as bar:
        while not run.finished() and stop.number is None:
            epoch = run.prepared.epoch(job.tokenizer.sampling, job.seed, progress.epoch)
            plan = epoch.plan(job.seed, progress.epoch, job.train.update_tokens)
            assert progress.update_in_epoch < len(plan), "a resumed run has the corpus that it began with"
            for update in plan[progress.update_in_epoch :]:
                _train_update(run, epoch, update)
                progress.update_in_epoch += 1
                if progress.update_in_epoch == len(plan):
                    progress.epoch, progress.update_in_epoch = progress.epoch + 1, 0
                run.recent.seconds += run.tick()
                _after_update(run)
                done = 100 * min(1.0, run.done_share())
                bar.update(done, f", epoch {progress.epoch}, update {progress.update}")
                if run.finished() or stop.number is not None:
                    break
    unvalidated = stop.number is None and progress.update not in dict(progress.validated)
    if unvalidated:
        _validate(run)
    if unvalidated or run.store.index().get("last") != _name(progress.update):
        _save(run)


def _train_update(run: Run, epoch: Epoch, update: Indices) -> None:
    """One optimizer step on the sentences of `update`, in as many batches as memory asks for."""
    job, recent = run.job, run.recent
    tokens = epoch.target_tokens(update)  # known before loading: the loss is divided by it, once
    rank, world_size = distributed.rank(), distributed.world_size()
    smoothed = nll = 0.0
    for batch in epoch.batches(update, job.train.batch_tokens, rank, world_size):
        moved = batch.to(run.runtime.device)
        with run.runtime.autocast():
            states = run.model(moved.source, moved.target_in)
            weight, smoothing = run.model.output.weight, job.optim.label_smoothing
            loss = label_smoothed_loss(states, weight, moved.target_out, smoothing, PAD)
        run.scaler.scale(loss.smoothed / tokens).backward()
        smoothed, nll = smoothed + float(loss.smoothed.detach()), nll + float(loss.nll)
        recent.real_tokens += batch.real_tokens
        recent.padded_tokens += batch.padded_tokens
    recent.all_target_tokens += tokens
    if _step(run):
        recent.updates += 1
        recent.target_tokens += tokens
        recent.smoothed, recent.nll = recent.smoothed + smoothed, recent.nll + nll


def _step(run: Run) -> bool:
    """Clip and apply the accumulated gradient; False for one that is not finite, which is skipped and counted."""
    progress, optim = run.progress, run.job.optim
    progress.update += 1
    for group in run.optimizer.param_groups:
        group["lr"] = learning_rate(progress.update, optim, run.job.model.d_model)
    run.scaler.unscale_(run.optimizer)
    norm = float(torch.nn.utils.clip_grad_norm_(run.model.parameters(), optim.clip_norm or math.inf))
    finite = math.isfinite(norm)
    if finite:
        run.scaler.step(run.optimizer)
        progress.skipped_in_a_row = 0
        run.recent.gradient_norm += norm
    else:
        progress.skipped += 1
        progress.skipped_in_a_row += 1
        run.log.warning(f"update {progress.update} skipped: its gradient is not finite ({progress.skipped} so far)")
    run.scaler.update()
    run.optimizer.zero_grad()
    if progress.skipped_in_a_row == GIVE_UP_AFTER:
        raise UserError(
            f"{GIVE_UP_AFTER} updates in a row had no finite gradient: lower optim.factor or optim.peak_lr, or"
            f" raise optim.warmup_steps; what was saved before is in {run.store.folder}"
        )
    return finite


def _after_update(run: Run) -> None:
    """Log, validate and save where it is due."""
    progress, train = run.progress, run.job.train
    if progress.update % train.log_every == 0:
        _log_training(run)
    due = progress.update % train.validate_every == 0 if train.validate_every else progress.update_in_epoch == 0
    if due:
        _validate(run)
    if due or (train.save_every and progress.update % train.save_every == 0):
        run.tick()
        _save(run)
        run.tick()


def _log_training(run: Run) -> None:
    recent, progress = run.recent, run.progress
    tokens = recent.target_tokens or math.nan  # none where every update was skipped
    values = {
        "loss": recent.smoothed / tokens,
        "nll": recent.nll / tokens,
        "perplexity": perplexity(recent.nll / tokens),
        "learning_rate": run.optimizer.param_groups[0]["lr"],
        "gradient_norm": recent.gradient_norm / max(1, recent.updates),
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
    run.recent = Recent()


def _validate(run: Run) -> None:
    progress = run.progress
    result = validate(run.model, run.prepared, run.job, run.runtime)
    kind = "greedy" if run.job.train.validate_beam == 1 else f"beam{run.job.train.validate_beam}"
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


def _save(run: Run) -> None:
    """A checkpoint of this moment; the ones that nothing needs any more go."""
    progress, store, train = run.progress, run.store, run.job.train
    name = _name(progress.update)
    state = training_state(progress, run.optimizer, run.scaler, run.runtime)
    score = dict(progress.validated).get(progress.update)
    corpus = run.prepared.folder.name
    meta = {"update": progress.update, "epoch": progress.epoch, "score": score, "corpus": corpus}
    weights = dict(run.model.named_parameters())
    store.save(name, weights, run.job, run.prepared.tokenizers, meta, state)
    best = {"best": _name(progress.best_update)} if progress.best_update else {}
    store.set(last=name, average=None, **best)  # an average of earlier checkpoints is not this run's any more
    needed = {_name(update) for update in progress.to_average(train.average, train.average_of)}
    store.delete([name for name in store.names() if name not in needed])


def _name(update: int) -> str:
    return f"update-{update:07d}"


def _score(run: Run, sources: Sources, run_folder: Path) -> None:
    """Score the average of the checkpoints, or the best one, on the test sets, for the first and only time."""
    train, store, log = run.job.train, run.store, run.log
    names = [_name(update) for update in run.progress.to_average(train.average, train.average_of)]
    if len(names) > 1:
        folder = store.average(names)
        log.info(f"averaged the weights of {len(names)} checkpoints, {names[0]} to {names[-1]}")
    else:
        store.set(average=None)
        folder = store.chosen(run_folder)
    checkpoint = Checkpoint.open(folder)
    options = run.job.decode
    full_precision = replace(run.runtime, products=torch.float32)
    model = checkpoint.load_model().to(run.runtime.device)
    translator = Translator(model, run.prepared.tokenizers, options, full_precision)
    sets = own_test_sets(sources, log.info)
    for name, chosen in sets.items():
        pairs = zip(chosen.sources, chosen.references, strict=True)
        if repeated := overlap(read_pairs(sources.train, run.job.data.invalid_utf8), pairs):
            log.warning(f"{name}: {repeated} of {len(chosen.sources)} pairs occur in the training text")
    if not sets:
        sets = {"dev": EvaluationSet(run.prepared.dev_source, run.prepared.dev_target)}
    log.info(f"scoring {checkpoint.folder.name} with beam {options.beam_size}, fp32")
    scores = score_sets(translator, checkpoint.folder.name, sets, run.job.data.target, run_folder, "scores", log.info)
    for line in table(scores).splitlines():
        log.info(line)
    store.set(scored=_name(run.progress.update))
    results = ", ".join(f"{name} {scores[name].sacrebleu:.2f}" for name in scores)
    log.info(f"done: sacreBLEU {results}; model {checkpoint.folder}")
