"""The checkpoints of a training: found when it is resumed, written while it runs, and chosen at its end."""

import time
from pathlib import Path

from mt.checkpoint.folder import Checkpoint, write_checkpoint
from mt.checkpoint.store import CheckpointStore
from mt.config.schema import TrainConfig
from mt.data.corpus import PreparedCorpus
from mt.errors import UserError
from mt.reporting.runlog import RunLog
from mt.run_folder import checkpoint_name
from mt.runtime import distributed
from mt.runtime.stop import StopRequest
from mt.training.state import TrainerState, pack
from mt.training.step import Learner


def find_resumable(store: CheckpointStore) -> tuple[Checkpoint | None, list[str]]:
    """The checkpoint to resume from, verified, if the run has saved one, and warnings about others."""
    warnings: list[str] = []
    store.clean()
    newest = store.newest(warnings.append)
    if not newest and store.run.saved.exists():
        raise UserError(
            f"{store.run.path} has saved checkpoints before, and they are gone from {store.folder}: put them back, or"
            f" remove {store.run.path} to begin again"
        )
    return newest, warnings


def settle_best(state: TrainerState, store: CheckpointStore, log: RunLog) -> None:
    """Make the index name the best checkpoint that the state knows, or none if that one is corrupt or gone."""

    def settle() -> bool:
        name = checkpoint_name(state.best_update)
        there = state.best_update > 0 and store.intact(name)
        if store.index().get("best") != (name if there else None):
            store.set(best=name if there else None)
        return there

    if not distributed.broadcast(settle) and state.best_update:
        lost = f"the best checkpoint, of update {state.best_update}, is corrupt or gone"
        log.warning(f"{lost}: the next validation counts as the best")
        state.best, state.best_update = None, 0


def save(
    store: CheckpointStore,
    config: TrainConfig,
    corpus: PreparedCorpus,
    learner: Learner,
    state: TrainerState,
    log: RunLog,
    stop: StopRequest,
) -> None:
    """Save a checkpoint of this moment, and delete those that are not needed any more."""
    state.seconds = stop.agree(state.seconds)
    packed = pack(state, learner.optimizer, learner.scaler, learner.runtime.device, log.position())
    if distributed.rank() == 0:
        began = time.monotonic()
        name, before = checkpoint_name(state.update), store.index().get("last")
        score = dict(state.validated).get(state.update)
        meta = {"update": state.update, "epoch": state.epoch, "score": score, "corpus": corpus.folder.name}
        weights = dict(learner.model.named_parameters())
        write_checkpoint(store.folder / name, weights, config, corpus.tokenizers, meta, packed)
        store.run.saved.touch()
        best = {"best": checkpoint_name(state.best_update)} if state.best_update else {}
        previous = {"previous": before} if before != name else {}  # in case the last one is damaged
        store.set(last=name, average=None, **previous, **best)  # an average of earlier ones is not the run's any more
        needed = _to_average(config, state)
        store.delete([name for name in store.names() if name not in needed])
        size = sum(path.stat().st_size for path in (store.folder / name).iterdir())
        log.info(f"saved {name}: {size / 1e6:,.1f} MB in {time.monotonic() - began:.2f} s")
    distributed.barrier()  # here, because this wait has no time limit


def model_to_score(store: CheckpointStore, config: TrainConfig, state: TrainerState, log: RunLog) -> Path:
    """The averaged checkpoint, written now, or the best one; corrupt ones are left out with a warning."""
    names = []
    for name in _to_average(config, state):
        if store.intact(name):
            names.append(name)
        else:
            log.warning(f"{store.folder / name} is corrupt or gone: the average does without it")
    if len(names) > 1:
        folder = store.average(names)
        log.info(f"averaged the weights of {len(names)} checkpoints, {names[0]} to {names[-1]}")
        return folder
    store.set(average=None)
    index = store.index()
    best = index.get("best", index["last"])
    if not store.intact(best):
        log.warning(f"{store.folder / best}, the best checkpoint, is corrupt or gone: the last one is scored")
        store.set(best=index["last"])
        best = index["last"]
    return store.folder / best


def _to_average(config: TrainConfig, state: TrainerState) -> list[str]:
    return [checkpoint_name(update) for update in state.to_average(config.train.average, config.train.average_of)]
