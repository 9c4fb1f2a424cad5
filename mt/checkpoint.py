"""A model on disk: an immutable folder with weights, configuration and tokenizers, training state beside them.

    model.safetensors    a tied matrix stands once
    config.yaml          the whole training job
    tokenizer.*          all that turns text into ids and back
    training_state.pt    plain types only, opened with weights_only
    meta.json            format version, update, scores, hashes

A folder is written under a name that begins with a dot, then renamed. `mt.checkpoint_store` keeps those of a run.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from safetensors import SafetensorError

from mt.config import TrainJob
from mt.data.tokenizer import BOS, EOS, PAD, Tokenizers
from mt.errors import UserError
from mt.jobs import check_limits, from_plain, to_plain

if TYPE_CHECKING:  # torch takes seconds to import, and translating with an exported model needs none of it
    from torch import Tensor

    from mt.model.transformer import Transformer

FORMAT = 2  # 1 had biases of keys and values, and was never released
WEIGHTS, CONFIG, STATE, META = "model.safetensors", "config.yaml", "training_state.pt", "meta.json"
INDEX = "index.json"
EXPORT_META = "export.json"  # in an exported model's folder, see mt.decoding.exported


class Damaged(UserError):
    """A checkpoint that is not what was written: a file is missing, cut short or changed."""


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint folder; weights and state are read when asked for."""

    folder: Path
    config: TrainJob
    meta: dict[str, Any]

    @classmethod
    def open(cls, path: str | Path, key: str = "checkpoint") -> "Checkpoint":
        """A checkpoint folder, or a run folder's average, else its best, else its last.

        Raises UserError; `key` is what the user named it by.
        """
        folder = Path(path).absolute()
        if not folder.is_dir():
            raise UserError(f"{key}={path}: there is no folder {folder}")
        if not (folder / META).exists():
            folder = _chosen(folder, key)
        meta = read_meta(folder)
        check_hash(folder / CONFIG, meta)
        return cls(folder, read_config(folder), meta)

    def load_weights(self) -> "dict[str, Tensor]":
        """Parameters by name, on the CPU. Raises UserError where the file is damaged."""
        from safetensors.torch import load_file

        path = self.folder / WEIGHTS
        check_hash(path, self.meta)
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise UserError(f"{path} cannot be read: {first_line(error)}") from error

    def load_model(self) -> "Transformer":
        """The model with its weights, in evaluation mode."""
        from mt.model.transformer import Transformer

        try:
            model = Transformer(self.config.model, self.meta["source_size"], self.meta["target_size"])
        except (ValueError, RuntimeError) as error:
            raise UserError(f"{self.folder} describes no possible model: {first_line(error)}") from error
        load_parameters(model, self.load_weights(), self.folder)
        return model.eval()

    def load_tokenizers(self) -> Tokenizers:
        """Both sides' tokenizers. Raises UserError where they do not fit the model."""
        for name in self.meta["hashes"]:
            if name.startswith("tokenizer."):
                check_hash(self.folder / name, self.meta)
        tokenizers = Tokenizers.load(self.folder)
        sizes = tokenizers.source.size, tokenizers.target.size
        if sizes != (self.meta["source_size"], self.meta["target_size"]):
            raise UserError(f"{self.folder}: the tokenizers have {sizes} units, which is not what the model has")
        return tokenizers

    def load_state(self) -> dict[str, Any]:
        """What training needs to go on. Raises UserError for none, or for anything but plain data in it."""
        import torch

        path = self.folder / STATE
        check_hash(path, self.meta)
        try:
            return dict(torch.load(path, map_location="cpu", weights_only=True))
        except Exception as error:  # torch raises many kinds for a damaged or forbidden pickle
            raise UserError(f"{path} cannot be read: {first_line(error)}") from error


def write_checkpoint(
    folder: Path,
    weights: "Mapping[str, Tensor]",
    config: TrainJob,
    tokenizers: Tokenizers,
    meta: Mapping[str, Any],
    state: Mapping[str, Any] | None = None,
) -> None:
    """Write a checkpoint; after a kill at any moment it is whole or not there. UserError for a full disk.

    One of the same name stays until the new one is whole; `finish_replacing` mends what a kill between the two leaves.
    """
    import torch
    from safetensors.torch import save_file

    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    tensors = {key: tensor.detach().cpu().contiguous() for key, tensor in weights.items()}
    try:
        temporary.mkdir(parents=True)
        save_file(tensors, temporary / WEIGHTS)
        if state is not None:
            torch.save(dict(state), temporary / STATE)
        (temporary / CONFIG).write_text(yaml.safe_dump(to_plain(config), sort_keys=False), encoding="utf-8")
        shutil.copymode(temporary / CONFIG, temporary / WEIGHTS)  # which safetensors lets nobody else read
        tokenizers.save(temporary)
        full_meta = {
            "format": FORMAT,
            "source_size": tokenizers.source.size,
            "target_size": tokenizers.target.size,
            "special_ids": {"pad": PAD, "bos": BOS, "eos": EOS},
            **meta,
            "hashes": {file.name: hash_file(file) for file in sorted(temporary.iterdir())},
        }
        (temporary / META).write_text(json.dumps(full_meta, indent=1), encoding="utf-8")
        _sync(temporary)
        if folder.exists():
            folder.rename(_replaced(folder))
        temporary.rename(folder)
        _sync_folder(folder.parent)
        shutil.rmtree(_replaced(folder), ignore_errors=True)
    except (OSError, SafetensorError, RuntimeError) as error:  # what the three writers raise for a full disk
        full = shutil.disk_usage(folder.parent).free < 2**20  # which torch's writer does not always say
        if type(error) is RuntimeError and "writ" not in str(error) and not full:
            raise
        reason = "No space left on device" if full else first_line(error)
        raise UserError(f"cannot save {folder}: {reason}; the checkpoints before it remain") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def finish_replacing(checkpoints: Path) -> None:
    """Put back a checkpoint that was about to be replaced when its process was killed."""
    for path in checkpoints.glob(f".*{_REPLACED}"):
        name = checkpoints / path.name.removeprefix(".").removesuffix(_REPLACED)
        if not name.exists():
            path.rename(name)


_REPLACED = ".replaced"


def _replaced(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}{_REPLACED}")


def load_parameters(model: "Transformer", weights: "Mapping[str, Tensor]", where: Path) -> None:
    """Copy weights into a model; names and shapes must be exactly the model's."""
    import torch

    parameters = dict(model.named_parameters())
    if parameters.keys() != weights.keys():
        odd = sorted(parameters.keys() ^ weights.keys())
        raise UserError(f"{where}: the weights do not fit the configured model: {odd[0]} is on one side only")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != weights[name].shape:
                raise UserError(f"{where}: {name} has shape {tuple(weights[name].shape)}, the model's differs")
            parameter.copy_(weights[name])


def read_index(checkpoints: Path) -> dict[str, str]:
    """Which checkpoint of a run is which: names by role. Empty where there is none yet."""
    path = checkpoints / INDEX
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {first_line(error)}") from error
    if not (isinstance(index, dict) and all(isinstance(name, str) for name in index.values())):
        raise UserError(f"{path} does not name checkpoints by their roles")
    return index


def _chosen(run: Path, key: str) -> Path:
    """The folder of a run's average, else its best, else its last checkpoint."""
    index = read_index(run / "checkpoints")
    for role in ("average", "best", "last"):
        if role in index:
            return run / "checkpoints" / index[role]
    raise UserError(f"{key}={run}: there is no checkpoint in it: name a run folder or a checkpoint")


def config_of(path: str, key: str) -> TrainJob:
    """The job behind a run folder, a checkpoint folder or an exported model. Raises UserError."""
    if (Path(path) / EXPORT_META).exists():
        return read_config(Path(path))
    return Checkpoint.open(path, key).config


def read_config(folder: Path) -> TrainJob:
    """The job of a checkpoint or run folder. Raises UserError where it is none."""
    path = folder / CONFIG
    try:
        config: TrainJob = from_plain(TrainJob, yaml.safe_load(path.read_text(encoding="utf-8")))
        check_limits(config)
    except (OSError, yaml.YAMLError, ValueError, UserError) as error:
        raise UserError(f"{path} cannot be read: {first_line(error)}") from error
    return config


def read_meta(folder: Path) -> dict[str, Any]:
    """A checkpoint's meta.json. Raises Damaged where it is none, UserError for another format."""
    path = folder / META
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Damaged(f"{path} cannot be read: {first_line(error)}") from error
    if not isinstance(meta, dict):
        raise Damaged(f"{path} does not describe a checkpoint")
    if meta.get("format") != FORMAT:
        newer = isinstance(meta.get("format"), int) and meta["format"] > FORMAT
        way_out = "upgrade mt" if newer else "use the mt that wrote it"
        raise UserError(f"{folder} has checkpoint format {meta.get('format')}, this mt reads {FORMAT}: {way_out}")
    if not all(isinstance(meta.get(key), kind) for key, kind in _META_KINDS.items()):
        raise Damaged(f"{path} does not describe a checkpoint")
    return meta


_META_KINDS = {"update": int, "source_size": int, "target_size": int, "hashes": dict}


def check_hash(path: Path, meta: Mapping[str, Any]) -> None:
    """Raises Damaged where a file of a checkpoint is not the one that its meta names."""
    try:
        found = hash_file(path)
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror}") from error
    if found != meta["hashes"].get(path.name):
        raise Damaged(f"{path} is damaged: its SHA-256 is not the one that was written down")


def first_line(error: BaseException) -> str:
    """What an exception says, in one line."""
    return (str(error) or type(error).__name__).splitlines()[0]


def hash_file(path: Path) -> str:
    """A file's SHA-256 in hexadecimal."""
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
