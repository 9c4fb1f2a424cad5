"""The checkpoints of a run: finding one to resume from, saving, and choosing the model to score."""

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
    """The verified checkpoint to resume from, if the run has saved one, and warnings about corrupt ones."""
    warnings: list[str] = []
    store.clean()
    newest = store.newest(warnings.append)
    if not newest and store.run.saved.exists():
        lost = f"{store.run.path} has saved checkpoints, but {store.folder} has none"
        raise UserError(f"{lost}: put them back, or remove {store.run.path} to start again")
    return newest, warnings


def settle_best(state: TrainerState, store: CheckpointStore, log: RunLog) -> None:
    """Set the best checkpoint in the index from the state; drop it if it is corrupt or missing."""
    name = checkpoint_name(state.best_update)
    there = distributed.broadcast(lambda: state.best_update > 0 and store.intact(name))
    if distributed.rank() == 0 and store.index().get("best") != (name if there else None):
        store.set(best=name if there else None)
    if state.best_update and not there:
        log.warning(f"the best checkpoint, {name}, is corrupt or missing: the next validation counts as the best")
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
    """Save a checkpoint, and delete those that are no longer needed."""
    state.seconds = stop.agree(state.seconds)
    packed = pack(state, learner, log.position())
    if distributed.rank() == 0:
        began = time.monotonic()
        name, before = checkpoint_name(state.update), store.index().get("last")
        score = dict(state.validated).get(state.update)
        meta = {"update": state.update, "epoch": state.epoch, "score": score, "corpus": corpus.folder.name}
        weights = dict(learner.model.named_parameters())
        write_checkpoint(store.folder / name, weights, config, corpus.tokenizers, meta, packed)
        store.run.saved.touch()
        best = {"best": checkpoint_name(state.best_update)} if state.best_update else {}
        previous = {"previous": before} if before != name else {}  # in case the last one becomes corrupt
        store.set(last=name, average=None, **previous, **best)  # an average of earlier ones is out of date
        store.delete([name for name in store.names() if name not in state.to_average(config.train)])
        size = sum(path.stat().st_size for path in (store.folder / name).iterdir())
        log.info(f"saved {name}: {size / 1e6:,.1f} MB in {time.monotonic() - began:.2f} s")
    distributed.barrier()  # waits here, because this barrier has no timeout


def model_to_score(store: CheckpointStore, config: TrainConfig, state: TrainerState, log: RunLog) -> Path:
    """Write and return the average of the checkpoints, or return the best; skip corrupt ones with a warning."""

    def usable(name: str, instead: str) -> bool:
        intact = store.intact(name)
        if not intact:
            log.warning(f"{store.folder / name} is corrupt or missing: {instead}")
        return intact

    names = [name for name in state.to_average(config.train) if usable(name, "it is left out of the average")]
    if len(names) > 1:
        folder = store.average(names)
        log.info(f"averaged the weights of {len(names)} checkpoints, {names[0]} to {names[-1]}")
        return folder
    index = store.index()
    best = index.get("best", index["last"])
    if not usable(best, "the last checkpoint is scored instead of the best"):
        best = index["last"]
        store.set(best=best)
    store.set(average=None)
    return store.folder / best
