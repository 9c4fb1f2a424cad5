"""A model on disk: an immutable folder with weights, configuration and tokenizers, training state beside them.

    model.safetensors    a tied matrix stands once
    config.yaml          the whole training job
    tokenizer.*          all that turns text into ids and back
    training_state.pt    plain types only, opened with weights_only
    meta.json            format version, update, scores, hashes

A folder is written under a name that begins with a dot, then renamed. Which checkpoint is the last, the best,
the average and the last one scored stands in checkpoints/index.json, swapped in one step.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from mt.config import AverageJob, TrainJob, Which
from mt.data.tokenizer import BOS, EOS, PAD, Tokenizers
from mt.errors import UserError
from mt.jobs import from_plain, to_plain
from mt.model.transformer import Transformer
from mt.runtime.files import only_writer, write_whole

FORMAT = 1
WEIGHTS, CONFIG, STATE, META = "model.safetensors", "config.yaml", "training_state.pt", "meta.json"


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint folder; weights and state are read when asked for."""

    folder: Path
    config: TrainJob
    meta: dict[str, Any]

    @classmethod
    def open(cls, path: str | Path) -> "Checkpoint":
        """A checkpoint folder, or a run folder's average, else its best, else its last. Raises UserError."""
        folder = Path(path).absolute()
        if not folder.is_dir():
            raise UserError(f"checkpoint={path}: there is no folder {folder}")
        if not (folder / META).exists():
            folder = CheckpointStore(folder / "checkpoints").chosen(folder)
        meta = _read_meta(folder)
        try:
            values = yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8"))
            return cls(folder, from_plain(TrainJob, values), meta)
        except (OSError, yaml.YAMLError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{folder / CONFIG} cannot be read: {_first_line(error)}") from error

    def load_weights(self) -> dict[str, Tensor]:
        """Parameters by name, on the CPU. Raises UserError where the file is damaged."""
        path = self.folder / WEIGHTS
        self._check_hash(path)
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path} cannot be read: {_first_line(error)}") from error

    def load_model(self) -> Transformer:
        """The model with its weights, in evaluation mode."""
        model = Transformer(self.config.model, self.meta["source_size"], self.meta["target_size"])
        load_parameters(model, self.load_weights(), self.folder)
        return model.eval()

    def load_tokenizers(self) -> Tokenizers:
        """Both sides' tokenizers. Raises UserError where they do not fit the model."""
        tokenizers = Tokenizers.load(self.folder)
        sizes = tokenizers.source.size, tokenizers.target.size
        if sizes != (self.meta["source_size"], self.meta["target_size"]):
            raise UserError(f"{self.folder}: the tokenizers have {sizes} units, which is not what the model has")
        return tokenizers

    def load_state(self) -> dict[str, Any]:
        """What training needs to go on. Raises UserError for none, or for anything but plain data in it."""
        path = self.folder / STATE
        self._check_hash(path)
        try:
            return dict(torch.load(path, map_location="cpu", weights_only=True))
        except Exception as error:  # torch raises many kinds for a damaged or forbidden pickle
            raise UserError(f"{path} cannot be read: {_first_line(error)}") from error

    def _check_hash(self, path: Path) -> None:
        try:
            found = _hash(path)
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from error
        if found != self.meta["hashes"].get(path.name):
            raise UserError(f"{path} is damaged: its SHA-256 is not the one that {META} names")


class CheckpointStore:
    """The checkpoints of a run and the index that says which is which."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def index(self) -> dict[str, str]:
        """Names by role: last, best, average, scored. Empty where there is none yet."""
        try:
            return dict(json.loads((self.folder / "index.json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise UserError(f"{self.folder / 'index.json'} cannot be read: {_first_line(error)}") from error

    def set(self, **roles: str | None) -> None:
        """Change roles in the index, all at once; None takes a role away."""
        index = {role: name for role, name in (self.index() | roles).items() if name is not None}
        write_whole(self.folder / "index.json", json.dumps(index, indent=1) + "\n")

    def chosen(self, run: Path) -> Path:
        """The folder of the average, else the best, else the last checkpoint."""
        index = self.index()
        for role in ("average", "best", "last"):
            if role in index:
                return self.folder / index[role]
        raise UserError(f"checkpoint={run}: there is no checkpoint in it: name a run folder or a checkpoint")

    def names(self) -> list[str]:
        """Training checkpoints from the oldest update to the newest."""
        found = [path.name for path in self.folder.glob("update-*") if (path / META).exists()]
        return sorted(found, key=lambda name: int(name.removeprefix("update-")))

    def save(
        self,
        name: str,
        weights: Mapping[str, Tensor],
        config: TrainJob,
        tokenizers: Tokenizers,
        meta: Mapping[str, Any],
        state: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a checkpoint; after a kill at any moment it is whole or not there. UserError for a full disk."""
        temporary = self.folder / f".{name}.{os.getpid()}"
        shutil.rmtree(temporary, ignore_errors=True)
        tensors = {key: tensor.detach().cpu().contiguous() for key, tensor in weights.items()}
        try:
            temporary.mkdir(parents=True)
            save_file(tensors, temporary / WEIGHTS)
            if state is not None:
                torch.save(dict(state), temporary / STATE)
            (temporary / CONFIG).write_text(yaml.safe_dump(to_plain(config), sort_keys=False), encoding="utf-8")
            tokenizers.save(temporary)
            full_meta = {
                "format": FORMAT,
                "source_size": tokenizers.source.size,
                "target_size": tokenizers.target.size,
                "special_ids": {"pad": PAD, "bos": BOS, "eos": EOS},
                **meta,
                "hashes": {file.name: _hash(file) for file in sorted(temporary.iterdir())},
            }
            (temporary / META).write_text(json.dumps(full_meta, indent=1), encoding="utf-8")
            _sync(temporary)
            shutil.rmtree(self.folder / name, ignore_errors=True)
            temporary.rename(self.folder / name)
            _sync_folder(self.folder)
        except (OSError, SafetensorError, RuntimeError) as error:  # what the three writers raise for a full disk
            reason = _first_line(error)
            raise UserError(f"cannot save {self.folder / name}: {reason}; the checkpoints before it remain") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def clean(self) -> None:
        """Remove what killed processes left half-written."""
        for path in self.folder.glob(".*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def delete(self, names: Sequence[str]) -> None:
        """Remove checkpoints, but never one that the index names."""
        for name in set(names) - set(self.index().values()):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def average(self, names: Sequence[str]) -> Path:
        """Make the mean of checkpoints' weights a checkpoint of its own, and the run's average; its folder."""
        name = f"{names[-1].replace('update', 'average')}-of-{len(names)}"
        folder = self.folder / name
        if (folder / META).exists() and _read_meta(folder)["average_of"] == list(names):
            self.set(average=name)
            return folder
        if folder.exists():  # other members: a checkpoint never changes
            name += "-" + hashlib.sha256(" ".join(names).encode()).hexdigest()[:6]
            folder = self.folder / name
        checkpoints = [Checkpoint.open(self.folder / each) for each in names]
        total = {key: tensor.double() for key, tensor in checkpoints[0].load_weights().items()}
        for checkpoint in checkpoints[1:]:
            for key, tensor in checkpoint.load_weights().items():
                total[key] += tensor
        mean = {key: (tensor / len(names)).float() for key, tensor in total.items()}
        newest = checkpoints[-1]
        meta = {"update": newest.meta["update"], "average_of": list(names)}
        self.save(name, mean, newest.config, newest.load_tokenizers(), meta)
        self.set(average=name)
        return folder

    def pick(self, count: int, which: Which) -> list[str]:
        """The last, or the best validated, checkpoints, in order of their updates."""
        names = self.names()
        if which is Which.best:
            scores = {name: _read_meta(self.folder / name).get("score") for name in names}
            validated = {name: float(score) for name, score in scores.items() if score is not None}
            best = sorted(validated, key=lambda name: validated[name])[-count:]
            names = [name for name in names if name in best]
        return names[-count:]


def load_parameters(model: Transformer, weights: Mapping[str, Tensor], where: Path) -> None:
    """Copy weights into a model; names and shapes must be exactly the model's."""
    parameters = dict(model.named_parameters())
    if parameters.keys() != weights.keys():
        odd = sorted(parameters.keys() ^ weights.keys())
        raise UserError(f"{where}: the weights do not fit the configured model: {odd[0]} is on one side only")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != weights[name].shape:
                raise UserError(f"{where}: {name} has shape {tuple(weights[name].shape)}, the model's differs")
            parameter.copy_(weights[name])


def stored_decode(path: str) -> dict[str, int | float]:
    """The decoding options that a checkpoint was trained with."""
    return to_plain(Checkpoint.open(path).config.decode)


def average_command(job: AverageJob) -> None:
    """`mt average`: average a run's last or best checkpoints and print the new folder."""
    run = Path(job.checkpoint).absolute()
    store = CheckpointStore(run / "checkpoints")
    names = store.pick(job.count, job.which) if store.folder.is_dir() else []
    if not names:
        raise UserError(f"checkpoint={job.checkpoint}: there is no checkpoint in {store.folder}")
    if len(names) < job.count:
        raise UserError(f"count={job.count}: there are only {len(names)} checkpoints in {store.folder}")
    with only_writer(run):
        print(store.average(names))


def _read_meta(folder: Path) -> dict[str, Any]:
    try:
        meta = dict(json.loads((folder / META).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / META} cannot be read: {_first_line(error)}") from error
    if meta.get("format") != FORMAT:
        raise UserError(f"{folder} has checkpoint format {meta.get('format')}, this mt reads {FORMAT}: upgrade mt")
    return meta


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync(folder: Path) -> None:
    for path in folder.iterdir():
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
