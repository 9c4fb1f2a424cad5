"""A training run, from configuration to scores."""

import json
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from mt.checkpoint.folder import Checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.config.rules import check_resumable
from mt.config.schema import InvalidText, TrainConfig
from mt.config.stored import to_yaml
from mt.corpora.formats import Sources, read_pairs
from mt.corpora.locate import locate
from mt.data.cleaning import overlap
from mt.data.corpus import PreparedCorpus
from mt.data.preparation import prepare
from mt.decoding.translator import Translator
from mt.errors import UserError
from mt.evaluation.metrics import bleu_metric, table
from mt.evaluation.scoring import EvaluationSet, own_sets, score_sets
from mt.files import atomic_write, locked
from mt.reporting.environment import describe_environment
from mt.reporting.runlog import RunLog
from mt.run_folder import RunFolder, checkpoint_name, find_checkpoint
from mt.runtime import distributed
from mt.runtime.device import start_runtime
from mt.runtime.process import say
from mt.runtime.stop import StopRequest
from mt.training.loop import run_updates
from mt.training.saving import find_resumable, model_to_score, save, settle_best
from mt.training.state import TrainerState, restore
from mt.training.step import Learner
from mt.training.validation import Validator

MANY_TO_SAMPLE = 500_000
SAMPLING_SECONDS, SAMPLING_BYTES = 250e-6, 1400  # per pair, at the peak; measured on one core with Multi30k


def train(config: TrainConfig) -> int:
    """Train or resume the configured run, score it on its test sets, and return the exit code.

    0: finished, now or before. 1: lost another process. 128 + n: stopped by signal n, after saving. All processes call
    this; only rank 0 writes. Raises UserError, or DataUnavailable if text cannot be downloaded.
    """
    run = RunFolder(config.run.folder)
    bleu_metric(config.data.target)  # fails early if a package is missing
    runtime = start_runtime(config.train.device, config.train.precision, config.train.threads, together=True)
    sources = distributed.rank_0_first(lambda: locate(config.data, say))
    with locked(run.lock, report=say) if distributed.rank() == 0 else nullcontext():
        distributed.barrier()
        if not all(distributed.all_gather(run.lock.exists())):
            raise UserError(f"not all processes see {run.path}: set run.root to a folder that every machine shares")
        store = CheckpointStore(run)
        resumed, warnings = distributed.broadcast(lambda: find_resumable(store))
        changed = check_resumable(str(run.path), resumed.config, config) if resumed else []
        packed = resumed.load_state() if resumed else {"log": {}}
        with RunLog(run, packed.get("log")) if distributed.rank() == 0 else RunLog(None, console=False) as log:
            for line in warnings:
                log.warning(line)
            for line in changed:
                log.info(f"changed since the run began: {line}")
            init_from, start_from = config.train.init_from, resumed
            if init_from and not resumed:
                found = distributed.broadcast(lambda: find_checkpoint(init_from, "train.init_from"))
                start_from = Checkpoint.open(found)
                start_from.load_tokenizers()  # verifies the files that are copied below
                log.info(f"starting from the weights and tokenizers of {found}")
            tokenizers_from = start_from.folder if start_from and init_from else None
            corpus = distributed.rank_0_first(
                lambda: prepare(sources, config.data, config.tokenizer, config.seed, log.info, tokenizers_from)
            )
            if len(set(distributed.all_gather(corpus.folder.name))) > 1:
                raise UserError("the processes see different texts: keep data/ in a folder that every machine shares")
            learner = Learner.create(config, corpus.tokenizers, runtime, start_from)
            _describe(config, corpus, learner, log)
            state = TrainerState()
            if resumed:
                state = _restore(config, corpus, learner, resumed, packed, log)
                settle_best(state, store, log)
                scored = distributed.broadcast(store.index).get("scored")
                if state.finished(config.train) and scored == resumed.folder.name:
                    why = "its patience has run out" if state.out_of_patience(config.train) else "its budget is spent"
                    log.info(f"{run.path} is finished, because {why}: nothing to do (mt evaluate scores it again)")
                    return 0
            if distributed.rank() == 0:
                _write_description(run, config, corpus, sources)
            code = _update(config, corpus, learner, state, store, log)
            if code == 0:
                _score(config, sources, corpus, learner, state, store, log)
            return code


def _describe(config: TrainConfig, corpus: PreparedCorpus, learner: Learner, log: RunLog) -> None:
    """Log the model, the data and the environment."""
    parameters = sum(parameter.numel() for parameter in learner.model.parameters())
    size, pairs, processes = corpus.tokenizers.target.size, len(corpus.source), distributed.world_size()
    log.info(f"model: {parameters:,} parameters, vocabulary {size:,}; {learner.runtime.describe()}")
    log.info(
        f"data: {pairs:,} training pairs, {len(corpus.dev.sources):,} for development; an update has up to"
        f" {config.train.update_tokens:,} target tokens, over {processes} process{'es' if processes > 1 else ''}"
    )
    log.info(f"environment: {describe_environment()}")
    if config.tokenizer.sampling and pairs >= MANY_TO_SAMPLE:
        minutes, memory = pairs * SAMPLING_SECONDS / 60, pairs * SAMPLING_BYTES * distributed.local_world_size()
        log.warning(
            f"tokenizer.sampling resamples all {pairs:,} pairs before each epoch, which takes about"
            f" {minutes:,.0f} minutes and {memory / 2**30:,.1f} GiB on this machine; set it to 0 to turn it off"
        )


def _restore(
    config: TrainConfig,
    corpus: PreparedCorpus,
    learner: Learner,
    resumed: Checkpoint,
    packed: dict[str, Any],
    log: RunLog,
) -> TrainerState:
    """Restore optimizer, scaler and random generators from the last checkpoint; returns the trainer state."""
    before = resumed.meta.get("corpus")
    if before != corpus.folder.name:
        now = f"but the text or its settings now give {corpus.folder.name}"
        raise UserError(f"{resumed.folder} was trained on {before}, {now}: restore them, or choose another run.name")
    state, processes = restore(packed, config.seed, learner)
    log.info(f"resuming from {resumed.folder.name}, epoch {state.epoch}")
    if processes != distributed.world_size():
        now = f"saved by {processes} processes, now {distributed.world_size()}"
        log.info(f"{now}: the updates stay the same, but dropout masks differ")
    return state


def _write_description(run: RunFolder, config: TrainConfig, corpus: PreparedCorpus, sources: Sources) -> None:
    """Write the configuration, the cleaning report and the held-out pairs of the run."""
    atomic_write(run.config, to_yaml(config))
    report = json.dumps(corpus.cleaning, indent=1, ensure_ascii=False) + "\n"
    atomic_write(run.cleaning, report.encode("utf-8", "backslashreplace").decode())  # file names may be invalid UTF-8
    if sources.hold_out_dev:
        for path, lines in zip(run.held_out, (corpus.dev.sources, corpus.dev.references), strict=True):
            atomic_write(path, "".join(line + "\n" for line in lines))


def _update(
    config: TrainConfig,
    corpus: PreparedCorpus,
    learner: Learner,
    state: TrainerState,
    store: CheckpointStore,
    log: RunLog,
) -> int:
    """Train until the budget is spent, and save; returns 0, or the exit code of a stopped run."""
    train, decode = config.train, replace(config.decode, beam_size=config.train.validate_beam, nbest=1)
    validator = Validator(
        Translator(learner.model, corpus.tokenizers, decode, learner.runtime),
        corpus.dev,
        batches=corpus.dev.batches(train.batch_tokens, learner.model.longest_input()),
        sentences=train.validate_sentences or len(corpus.dev.sources),
        language=config.data.target,
        label_smoothing=config.optim.label_smoothing,
    )
    with StopRequest() as stop:
        save_now = partial(save, store, config, corpus, learner, state, log, stop)
        try:
            run_updates(config, corpus, learner, state, validator, save_now, log, stop)
            if distributed.broadcast(store.index).get("last") != checkpoint_name(state.update):
                save_now()
            stop.agree()
        except RuntimeError as error:
            if stop.heard is None or not distributed.lost_contact(error):
                raise
            log.warning(f"lost contact with another process; the last checkpoint is in {store.folder}")
            return 1  # that process has printed the reason, and the launcher ends the others
    if stop.number is None:
        return 0
    log.info(f"stopped by signal {stop.number} at update {state.update}; the same command resumes the run")
    return 128 + stop.number


def _score(
    config: TrainConfig,
    sources: Sources,
    corpus: PreparedCorpus,
    learner: Learner,
    state: TrainerState,
    store: CheckpointStore,
    log: RunLog,
) -> None:
    """Score the averaged or the best checkpoint on the test sets, once."""
    checkpoint = Checkpoint.open(distributed.broadcast(lambda: model_to_score(store, config, state, log)))
    translator = Translator.of(checkpoint, config.decode, learner.runtime.in_float32())
    sets = distributed.broadcast(lambda: own_sets(sources, log.info))
    for name, chosen in sets.items() if distributed.rank() == 0 else ():
        train = read_pairs(sources.train, keep_invalid=config.data.invalid_utf8 is InvalidText.skip)
        if repeated := overlap(train, zip(chosen.sources, chosen.references, strict=True)):
            log.warning(f"{name}: {repeated} of {len(chosen.sources)} pairs are also in the training text")
    if not sets:
        sets = {"dev": EvaluationSet(corpus.dev.sources, corpus.dev.references)}
    model = checkpoint.folder.name
    log.info(f"scoring {model} with beam {config.decode.beam_size}, fp32")
    scores = score_sets(translator, model, sets, config.data.target, store.run.path, "scores", log.info)
    if distributed.rank() == 0:
        for line in table(scores).splitlines():
            log.info(line)
        store.set(scored=checkpoint_name(state.update))
        results = ", ".join(f"{name} {found.sacrebleu:.2f}" for name, found in scores.items())
        log.info(f"done: sacreBLEU {results}; model {checkpoint.folder}")
