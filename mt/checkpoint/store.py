"""The checkpoints of a run. checkpoints/index.json names the last, previous, best, average and scored one."""

import hashlib
import itertools
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mt.checkpoint.folder import Checkpoint, read_meta, write_checkpoint
from mt.config.schema import Which
from mt.errors import Corrupt, UserError, explain_os_errors
from mt.files import atomic_write, restore_replaced
from mt.run_folder import META, WEIGHTS, RunFolder


class CheckpointStore:
    """The checkpoints of a run."""

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.folder = run.checkpoints
        self.index = run.read_index

    def set(self, **roles: str | None) -> None:
        """Update roles in the index atomically; None removes a role."""
        self._write_index(self.index() | roles)

    def _write_index(self, roles: Mapping[str, str | None]) -> None:
        index = {role: name for role, name in roles.items() if name is not None}
        with explain_os_errors(f"cannot write {self.run.index}, whose old content remains"):
            atomic_write(self.run.index, json.dumps(index, indent=1) + "\n")

    def names(self) -> list[str]:
        """The checkpoints that training saved, from the oldest to the newest."""
        return [name for name in self._folders() if (self.folder / name / META).exists()]

    def _folders(self) -> list[str]:
        found = [path.name for path in self.folder.glob("update-*") if path.name.removeprefix("update-").isdecimal()]
        return sorted(found, key=lambda name: int(name.removeprefix("update-")))

    def clean(self) -> None:
        """Restore replaced checkpoints; remove unfinished files of killed processes."""
        restore_replaced(self.folder)
        for path in self.folder.glob(".*"):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()

    def intact(self, name: str) -> bool:
        """Whether all files of a checkpoint are there, unchanged."""
        try:
            Checkpoint.open(self.folder / name).verify()
        except Corrupt:
            return False
        return True

    def newest(self, warn: Callable[[str], None]) -> Checkpoint | None:
        """The newest intact checkpoint, from which the run resumes; None if none was ever saved.

        Newer corrupt ones are renamed and reported to `warn`. Raises UserError if all are corrupt: a run that has
        saved something never starts from scratch by itself.
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
                numbers = itertools.count(1)
                aside = f"damaged-{bad}"
                while (self.folder / aside).exists():
                    aside = f"damaged-{bad}-{next(numbers)}"
                (self.folder / bad).rename(self.folder / aside)
                warn(f"{why}; it is renamed to {aside}, and the run resumes from {name}")
            self._repair_index(name, warn)
            return checkpoint
        if corrupt or self.run.index.exists():
            reason = f" ({corrupt[0][1]})" if corrupt else ""
            way_out = f"put one back, or remove {self.run.path} to start again"
            raise UserError(f"{self.folder} has no intact checkpoint to resume from{reason}: {way_out}")
        return None

    def _repair_index(self, last: str, warn: Callable[[str], None]) -> None:
        """Correct an index that is corrupt or, because of a kill, older than the last checkpoint."""
        try:
            index = self.index()
        except UserError as error:
            warn(f"{error}; it is rewritten")
            index = {}
        there = {role: name for role, name in index.items() if (self.folder / name / META).exists()}
        if there | {"last": last} != index:
            self._write_index(there | {"last": last})

    def delete(self, names: Sequence[str]) -> None:
        """Remove checkpoints, except those that the index names."""
        for name in set(names) - set(self.index().values()):
            gone = self.folder / f".{name}.deleted"  # renamed first, so that a kill leaves no partial checkpoint
            with suppress(OSError):
                shutil.rmtree(gone, ignore_errors=True)
                (self.folder / name).rename(gone)
                shutil.rmtree(gone)

    def average(self, names: Sequence[str]) -> Path:
        """Write the mean of the checkpoints' weights as a new checkpoint, the run's average; returns its folder."""
        members = {name: read_meta(self.folder / name)["hashes"][WEIGHTS] for name in names}
        name = f"{names[-1].replace('update', 'average')}-of-{len(names)}"
        if (self.folder / name).exists() and not self._is_average(name, members):  # no checkpoint is ever replaced
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
        """Whether there is an intact average of exactly these weights."""
        return self.intact(name) and read_meta(self.folder / name).get("average_of") == members

    def pick(self, count: int, which: Which) -> list[str]:
        """The last or the best validated checkpoints, in order of their updates."""
        names = self.names()
        if which is Which.best:
            scores = {name: read_meta(self.folder / name).get("score") for name in names}
            validated = {name: float(score) for name, score in scores.items() if score is not None}
            best = sorted(validated, key=lambda name: validated[name])[-count:]
            names = [name for name in names if name in best]
        return names[-count:]
