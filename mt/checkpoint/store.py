"""The checkpoints of a run, and which of them is the last, the one before it, the best, the average, the scored one.

checkpoints/index.json names them by these roles, and is replaced in one step.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mt.checkpoint.folder import Checkpoint, read_meta, write_checkpoint
from mt.config.schema import Which
from mt.errors import Corrupt, UserError
from mt.files import atomic_write, restore_replaced
from mt.run_folder import META, WEIGHTS, RunFolder


class CheckpointStore:
    """The checkpoints of a run."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.folder = run.checkpoints

    def index(self) -> dict[str, str]:
        """Names by role: last, previous, best, average, scored. Empty if nothing was saved yet."""
        return self.run.read_index()

    def set(self, **roles: str | None) -> None:
        """Change roles in the index, all at once; None takes a role away."""
        self._write_index(self.index() | roles)

    def _write_index(self, roles: Mapping[str, str | None]) -> None:
        index = {role: name for role, name in roles.items() if name is not None}
        try:
            atomic_write(self.run.index, json.dumps(index, indent=1) + "\n")
        except OSError as error:
            raise UserError(
                f"cannot write {self.run.index}: {error.strerror or error}; its old content remains"
            ) from error

    def names(self) -> list[str]:
        """The checkpoints of the training, from the oldest update to the newest."""
        return [name for name in self._folders() if (self.folder / name / META).exists()]

    def _folders(self) -> list[str]:
        found = [path.name for path in self.folder.glob("update-*") if path.name.removeprefix("update-").isdecimal()]
        return sorted(found, key=lambda name: int(name.removeprefix("update-")))

    def clean(self) -> None:
        """Remove everything that killed processes left unfinished."""
        restore_replaced(self.folder)
        for path in self.folder.glob(".*"):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()

    def intact(self, name: str) -> bool:
        """Whether all files of a checkpoint are there as they were written."""
        try:
            Checkpoint.open(self.folder / name).verify()
        except Corrupt:
            return False
        return True

    def newest(self, warn: Callable[[str], None]) -> Checkpoint | None:
        """The newest intact checkpoint, from which the run resumes. None if none was ever saved.

        Newer ones that are corrupt are put aside under another name, and `warn` is told. Raises UserError if all are:
        a run with a past never begins again by itself.
        """
        corrupt: list[tuple[str, Corrupt]] = []
        for name in reversed(self._folders()):
            try:
                checkpoint = Checkpoint.open(self.folder / name)
                checkpoint.verify()
            except Corrupt as error:
                corrupt.append((name, error))
                continue
            for bad, why in corrupt:
                warn(f"{why}; it is put aside as {self._put_aside(bad)}, and the run resumes from {name}")
            self._repair_index(name, warn)
            return checkpoint
        if corrupt or self.run.index.exists():
            reason = f" ({corrupt[0][1]})" if corrupt else ""
            raise UserError(
                f"{self.folder} has no intact checkpoint to resume from{reason}: put one back, or remove"
                f" {self.run.path} to begin again"
            )
        return None

    def _put_aside(self, name: str) -> str:
        number = 0
        while (self.folder / (aside := f"damaged-{name}" + (f"-{number}" if number else ""))).exists():
            number += 1
        (self.folder / name).rename(self.folder / aside)
        return aside

    def _repair_index(self, last: str, warn: Callable[[str], None]) -> None:
        """Correct an index that is corrupt, or older than the last checkpoint because a kill came between the two."""
        try:
            index = self.index()
        except UserError as error:
            warn(f"{error}; it is written anew")
            index = {}
        there = {role: name for role, name in index.items() if (self.folder / name / META).exists()}
        if there | {"last": last} != index:
            self._write_index(there | {"last": last})

    def delete(self, names: Sequence[str]) -> None:
        """Remove checkpoints, but none that the index names."""
        for name in set(names) - set(self.index().values()):
            gone = self.folder / f".{name}.deleted"  # hidden first, so that no half of it is taken for a checkpoint
            with suppress(OSError):
                shutil.rmtree(gone, ignore_errors=True)
                (self.folder / name).rename(gone)
                shutil.rmtree(gone)

    def average(self, names: Sequence[str]) -> Path:
        """Write the mean of the weights of checkpoints as a checkpoint of its own, the run's average; its folder."""
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
        """Whether an intact average of exactly these weights exists."""
        return self.intact(name) and read_meta(self.folder / name).get("average_of") == members

    def pick(self, count: int, which: Which) -> list[str]:
        """The last, or the best validated, checkpoints, in order of their updates."""
        names = self.names()
        if which is Which.best:
            scores = {name: read_meta(self.folder / name).get("score") for name in names}
            validated = {name: float(score) for name, score in scores.items() if score is not None}
            best = sorted(validated, key=lambda name: validated[name])[-count:]
            names = [name for name in names if name in best]
        return names[-count:]
