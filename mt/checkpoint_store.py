"""The checkpoints of a run: which is the last, the one before it, the best, the average and the one scored.

That stands in checkpoints/index.json, swapped in one step.
"""

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mt.checkpoint import (
    INDEX,
    META,
    WEIGHTS,
    Checkpoint,
    Damaged,
    check_hash,
    finish_replacing,
    read_index,
    read_meta,
    write_checkpoint,
)
from mt.config import AverageJob, Which
from mt.errors import UserError
from mt.runtime.files import only_writer, write_whole


def checkpoint_name(update: int) -> str:
    """The folder name of the checkpoint of an update."""
    return f"update-{update:07d}"


class CheckpointStore:
    """The checkpoints of a run and the index that says which is which."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def index(self) -> dict[str, str]:
        """Names by role: last, previous, best, average, scored. Empty where there is none yet."""
        return read_index(self.folder)

    def set(self, **roles: str | None) -> None:
        """Change roles in the index, all at once; None takes a role away."""
        self._write_index(self.index() | roles)

    def _write_index(self, roles: Mapping[str, str | None]) -> None:
        index = {role: name for role, name in roles.items() if name is not None}
        try:
            write_whole(self.folder / INDEX, json.dumps(index, indent=1) + "\n")
        except OSError as error:
            reason = error.strerror or error
            raise UserError(f"cannot write {self.folder / INDEX}: {reason}; what it said before holds") from error

    def names(self) -> list[str]:
        """Training checkpoints from the oldest update to the newest."""
        return [name for name in self._folders() if (self.folder / name / META).exists()]

    def _folders(self) -> list[str]:
        found = [path.name for path in self.folder.glob("update-*") if path.name.removeprefix("update-").isdecimal()]
        return sorted(found, key=lambda name: int(name.removeprefix("update-")))

    def clean(self) -> None:
        """Remove what killed processes left half-written."""
        finish_replacing(self.folder)
        for path in self.folder.glob(".*"):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()

    def sound(self, name: str) -> bool:
        """Whether a checkpoint is there as it was written."""
        try:
            self._check(name)
        except Damaged:
            return False
        return True

    def _check(self, name: str) -> None:
        meta = read_meta(self.folder / name)
        for file in meta["hashes"]:
            check_hash(self.folder / name / file, meta)

    def newest(self, warn: Callable[[str], None]) -> Checkpoint | None:
        """The newest sound checkpoint, to go on from. None where none was ever written.

        Newer ones that are damaged are put aside under another name, and `warn` is told. UserError where all are:
        a run with a past does not begin again by itself.
        """
        damaged: list[tuple[str, Damaged]] = []
        for name in reversed(self._folders()):
            try:
                self._check(name)
            except Damaged as error:
                damaged.append((name, error))
                continue
            for bad, why in damaged:
                aside = self._put_aside(bad)
                warn(f"{why}; it is put aside as {aside}, and the run goes on from {name}")
            self._mend_index(name, warn)
            return Checkpoint.open(self.folder / name)
        if damaged or (self.folder / INDEX).exists():
            reason = f" ({damaged[0][1]})" if damaged else ""
            raise UserError(
                f"{self.folder} has no sound checkpoint to go on from{reason}: put one back, or remove"
                f" {self.folder.parent} to begin again"
            )
        return None

    def _put_aside(self, name: str) -> str:
        number = 0
        while (self.folder / (aside := f"damaged-{name}" + (f"-{number}" if number else ""))).exists():
            number += 1
        (self.folder / name).rename(self.folder / aside)
        return aside

    def _mend_index(self, last: str, warn: Callable[[str], None]) -> None:
        """Where a kill came between a checkpoint and the index, or the index is damaged."""
        try:
            index = self.index()
        except UserError as error:
            warn(f"{error}; it is made anew")
            index = {}
        there = {role: name for role, name in index.items() if (self.folder / name / META).exists()}
        if there | {"last": last} != index:
            self._write_index(there | {"last": last})

    def delete(self, names: Sequence[str]) -> None:
        """Remove checkpoints, but never one that the index names."""
        for name in set(names) - set(self.index().values()):
            gone = self.folder / f".{name}.deleted"  # first out of sight, so that no half of it is taken for one
            with suppress(OSError):
                shutil.rmtree(gone, ignore_errors=True)
                (self.folder / name).rename(gone)
                shutil.rmtree(gone)

    def average(self, names: Sequence[str]) -> Path:
        """Make the mean of checkpoints' weights a checkpoint of its own, and the run's average; its folder."""
        members = {name: read_meta(self.folder / name)["hashes"][WEIGHTS] for name in names}
        name = f"{names[-1].replace('update', 'average')}-of-{len(names)}"
        if (self.folder / name).exists() and not self._is_average(name, members):  # a checkpoint never changes
            name += "-" + hashlib.sha256(" ".join(members.values()).encode()).hexdigest()[:6]
        if not self._is_average(name, members):
            checkpoints = [Checkpoint.open(self.folder / each) for each in names]
            total = {key: tensor.double() for key, tensor in checkpoints[0].load_weights().items()}
            for checkpoint in checkpoints[1:]:
                for key, tensor in checkpoint.load_weights().items():
                    total[key] += tensor
            mean = {key: (tensor / len(names)).float() for key, tensor in total.items()}
            newest = checkpoints[-1]
            meta = {"update": newest.meta["update"], "average_of": members}
            write_checkpoint(self.folder / name, mean, newest.config, newest.load_tokenizers(), meta)
        self.set(average=name)
        return self.folder / name

    def _is_average(self, name: str, members: Mapping[str, str]) -> bool:
        """Whether a sound average of these very weights is there."""
        return self.sound(name) and read_meta(self.folder / name).get("average_of") == members

    def pick(self, count: int, which: Which) -> list[str]:
        """The last, or the best validated, checkpoints, in order of their updates."""
        names = self.names()
        if which is Which.best:
            scores = {name: read_meta(self.folder / name).get("score") for name in names}
            validated = {name: float(score) for name, score in scores.items() if score is not None}
            best = sorted(validated, key=lambda name: validated[name])[-count:]
            names = [name for name in names if name in best]
        return names[-count:]


def average_command(job: AverageJob) -> None:
    """`mt average`: average a run's last or best checkpoints and print the new folder."""
    run = Path(job.checkpoint).absolute()
    store = CheckpointStore(run / "checkpoints")
    if not (store.folder.is_dir() and store.names()):
        raise UserError(f"checkpoint={job.checkpoint}: there is no checkpoint in {store.folder}")
    with only_writer(run, report=lambda line: print(line, file=sys.stderr, flush=True)):
        names = store.pick(job.count, job.which)
        if len(names) < job.count:
            raise UserError(f"count={job.count}: there are only {len(names)} checkpoints in {store.folder}")
        print(store.average(names))
