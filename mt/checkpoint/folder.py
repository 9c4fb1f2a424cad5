"""A checkpoint on disk: an immutable folder with weights, configuration, tokenizers and, for resuming, training state.

model.safetensors    a tied matrix is stored once
config.yaml          the whole configuration of the training
tokenizer.*          everything that turns text into ids and back
training_state.pt    plain types only, loaded with weights_only
meta.json            format version, update, score, SHA-256 of the other files
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from mt.config.schema import TrainConfig
from mt.config.stored import read_config, to_yaml
from mt.errors import Corrupt, UserError, explain_os_errors, first_line
from mt.files import atomic_folder, sha256_of, verify_hash
from mt.model.transformer import Transformer
from mt.run_folder import CONFIG, META, STATE, WEIGHTS
from mt.tokenizers.pair import Tokenizers

FORMAT = 2  # 1 had biases of keys and values, and was never released
_META_KINDS = {"update": int, "source_size": int, "target_size": int, "hashes": dict}


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint folder. Each file is verified once, before it is read."""

    folder: Path
    config: TrainConfig
    meta: dict[str, Any]
    _verified: set[str] = field(default_factory=set, repr=False, compare=False)

    @classmethod
    def open(cls, folder: Path) -> "Checkpoint":
        """Open a checkpoint folder. Raises Corrupt, or UserError for another format."""
        meta = read_meta(folder)
        verify_hash(folder / CONFIG, meta["hashes"].get(CONFIG))
        return cls(folder, read_config(folder / CONFIG), meta, {CONFIG})

    def verify(self) -> None:
        """Verify all files. Raises Corrupt."""
        for name in self.meta["hashes"]:
            self._intact(name)

    def _intact(self, name: str) -> Path:
        """The path of a file, after verifying it once. Raises Corrupt."""
        if name not in self._verified:
            verify_hash(self.folder / name, self.meta["hashes"].get(name))
            self._verified.add(name)
        return self.folder / name

    def load_weights(self) -> dict[str, Tensor]:
        """The parameters by name, on the CPU. Raises Corrupt."""
        path = self._intact(WEIGHTS)
        with explain_os_errors(f"{path} cannot be read", Corrupt, (SafetensorError,)):
            return load_file(path)

    def load_model(self) -> Transformer:
        """The model with its weights, in evaluation mode."""
        with explain_os_errors(f"{self.folder} describes an impossible model", others=(ValueError, RuntimeError)):
            model = Transformer(self.config.model, self.meta["source_size"], self.meta["target_size"])
        self.load_into(model)
        return model.eval()

    def load_into(self, model: Transformer) -> None:
        """Copy the weights into a model. Raises UserError if names or shapes differ from the model's."""
        weights, parameters = self.load_weights(), dict(model.named_parameters())
        if parameters.keys() != weights.keys():
            odd = sorted(parameters.keys() ^ weights.keys())
            raise UserError(f"{self.folder}: the weights do not fit the model: only one of them has {odd[0]}")
        with torch.no_grad():
            for name, parameter in parameters.items():
                stored, expected = tuple(weights[name].shape), tuple(parameter.shape)
                if stored != expected:
                    raise UserError(f"{self.folder}: {name} has shape {stored}, but the model needs {expected}")
                parameter.copy_(weights[name])

    def load_tokenizers(self) -> Tokenizers:
        """Both sides' tokenizers. Raises UserError if they do not fit the model."""
        for name in self.meta["hashes"]:
            if name.startswith("tokenizer."):
                self._intact(name)
        tokenizers = Tokenizers.load(self.folder)
        sizes = tokenizers.source.size, tokenizers.target.size
        if sizes != (expected := (self.meta["source_size"], self.meta["target_size"])):
            raise UserError(f"{self.folder}: the tokenizers have {sizes} units, but the model has {expected}")
        return tokenizers

    def load_state(self) -> dict[str, Any]:
        """The training state. Raises Corrupt if there is none, or if it holds anything but plain data."""
        path = self._intact(STATE)
        # torch raises many kinds of errors for a corrupt or forbidden pickle
        with explain_os_errors(f"{path} cannot be read", Corrupt, (Exception,)):
            return dict(torch.load(path, map_location="cpu", weights_only=True))


def read_meta(folder: Path) -> dict[str, Any]:
    """Read a checkpoint's meta.json. Raises Corrupt if it is invalid, UserError for another format."""
    path = folder / META
    with explain_os_errors(f"{path} cannot be read", Corrupt, (ValueError,)):
        meta = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(meta, dict):
        raise Corrupt(f"{path} does not describe a checkpoint")
    if meta.get("format") != FORMAT:
        newer = isinstance(meta.get("format"), int) and meta["format"] > FORMAT
        way_out = "upgrade mt" if newer else "use the mt that wrote it"
        raise UserError(f"{folder} has checkpoint format {meta.get('format')}, but this mt reads {FORMAT}: {way_out}")
    if not all(isinstance(meta.get(key), kind) for key, kind in _META_KINDS.items()):
        raise Corrupt(f"{path} does not describe a checkpoint")
    return meta


def write_checkpoint(
    folder: Path,
    weights: Mapping[str, Tensor],
    config: TrainConfig,
    tokenizers: Tokenizers,
    meta: Mapping[str, Any],
    state: Mapping[str, Any] | None = None,
) -> None:
    """Write a checkpoint atomically. Raises UserError if it cannot be written, as on a full disk."""
    tensors = {key: tensor.detach().cpu().contiguous() for key, tensor in weights.items()}
    try:
        with atomic_folder(folder) as unfinished:
            save_file(tensors, unfinished / WEIGHTS)
            if state is not None:
                torch.save(dict(state), unfinished / STATE)
            (unfinished / CONFIG).write_text(to_yaml(config), encoding="utf-8")
            shutil.copymode(unfinished / CONFIG, unfinished / WEIGHTS)  # safetensors makes it owner-only
            tokenizers.save(unfinished)
            full_meta = {
                "format": FORMAT,
                "source_size": tokenizers.source.size,
                "target_size": tokenizers.target.size,
                **meta,
                "hashes": {file.name: sha256_of(file) for file in sorted(unfinished.iterdir())},
            }
            (unfinished / META).write_text(json.dumps(full_meta, indent=1), encoding="utf-8")
    except (OSError, SafetensorError, RuntimeError) as error:  # each writer raises a different one for a full disk
        full = shutil.disk_usage(next(p for p in folder.parents if p.exists())).free < 2**20  # torch may not say so
        if type(error) is RuntimeError and "writ" not in str(error) and not full:
            raise
        reason = "No space left on device" if full else first_line(error)
        raise UserError(f"cannot save {folder}: {reason}; earlier checkpoints remain") from error
