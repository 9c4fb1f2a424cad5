"""The paths inside run folders and checkpoint folders, and the index of a run's checkpoints.

outputs/NAME/        config.yaml train.log metrics.jsonl cleaning.json scores.json hypotheses/ tensorboard/ exports/
  checkpoints/       index.json update-0000100/ average-0000100-of-3/
    update-0000100/  model.safetensors config.yaml tokenizer.* training_state.pt meta.json
"""

import json
from pathlib import Path

from mt.errors import UserError, explain_os_errors

WEIGHTS, CONFIG, STATE, META = "model.safetensors", "config.yaml", "training_state.pt", "meta.json"
EXPORT_META = "export.json"
ROLES = ("average", "best", "last")  # in order of preference when a run is loaded


class RunFolder:
    """The paths of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / CONFIG
        self.log = path / "train.log"
        self.metrics = path / "metrics.jsonl"
        self.tensorboard = path / "tensorboard"
        self.cleaning = path / "cleaning.json"
        self.not_finite = path / "not_finite.txt"  # training lines of the update that ended the run
        self.held_out = (path / "held_out.source.txt", path / "held_out.target.txt")  # if there are no dev files
        self.exports = path / "exports"
        self.lock = path / ".lock"
        self.saved = path / ".saved"  # marker of the first save, kept even if all checkpoints are gone
        self.checkpoints = path / "checkpoints"
        self.index = self.checkpoints / "index.json"

    def read_index(self) -> dict[str, str]:
        """Checkpoint names by role: last, previous, best, average, scored. Empty before the first save."""
        if not self.index.exists():
            return {}
        with explain_os_errors(f"{self.index} cannot be read", others=(ValueError,)):
            index = json.loads(self.index.read_text(encoding="utf-8"))
        if not (isinstance(index, dict) and all(isinstance(name, str) for name in index.values())):
            raise UserError(f"{self.index} does not map roles to checkpoint names")
        return index


def checkpoint_name(update: int) -> str:
    """The folder name of the checkpoint after `update`."""
    return f"update-{update:07d}"


def run_of(checkpoint: Path) -> RunFolder | None:
    """The run that a checkpoint folder belongs to, or None."""
    run = RunFolder(checkpoint.parent.parent)
    return run if run.checkpoints == checkpoint.parent else None


def find_checkpoint(path: str | Path, key: str = "checkpoint", exports: bool = False) -> Path:
    """The checkpoint at `path`, or the run's average, best or last one; with `exports`, `path` may be an export."""
    folder = Path(path).absolute()
    if not folder.is_dir():
        raise UserError(f"{key}={path}: there is no folder {folder}")
    if (folder / META).exists() or (exports and (folder / EXPORT_META).exists()):
        return folder
    if (folder / EXPORT_META).exists():
        raise UserError(f"{key}={path} is an export, which only mt translate can use: give the run or a checkpoint")
    run = RunFolder(folder)
    index = run.read_index()
    if name := next((index[role] for role in ROLES if role in index), None):
        return run.checkpoints / name
    raise UserError(f"{key}={path} contains no checkpoint: give a run folder or a checkpoint")
