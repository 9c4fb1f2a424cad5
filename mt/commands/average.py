"""`mt average`: average checkpoints of a run into a new checkpoint, and print its folder."""

from dataclasses import dataclass
from pathlib import Path

from mt.config.compose import compose
from mt.config.overrides import Command
from mt.config.schema import Which, key
from mt.errors import UserError
from mt.files import locked
from mt.run_folder import RunFolder, find_checkpoint
from mt.runtime.process import say


@dataclass(frozen=True)
class AverageConfig:
    checkpoint: str = key("", "a run folder")
    count: int = key(5, "number of checkpoints to average", low=1)
    which: Which = key(Which.last, "average the last or the best checkpoints")


def run(overrides: list[str]) -> int:
    """Average the run's last or best checkpoints; the result becomes the run's average."""
    config: AverageConfig = compose(COMMAND, overrides)
    find_checkpoint(config.checkpoint)  # reports a wrong path
    from mt.checkpoint.store import CheckpointStore

    folder = RunFolder(Path(config.checkpoint).absolute())
    store = CheckpointStore(folder)
    if not store.names():
        raise UserError(f"checkpoint={config.checkpoint}: there is no checkpoint in {store.folder}")
    with locked(folder.lock, report=say):
        names = store.pick(config.count, config.which)
        if len(names) < config.count:
            raise UserError(
                f"count={config.count}: only {len(names)} {config.which.value} checkpoints in {store.folder}"
            )
        print(store.average(names))
    return 0


COMMAND = Command(
    name="average",
    help="average the weights of a run's checkpoints into a new checkpoint",
    config=AverageConfig,
    run=run,
    examples=(("the last five checkpoints", "mt average checkpoint=outputs/multi30k-en-de count=5"),),
)
