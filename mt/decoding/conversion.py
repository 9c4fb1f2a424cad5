"""Converts a checkpoint to a CTranslate2 model with CTranslate2's own specification classes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2.specs import Activation as Name
from ctranslate2.specs import TransformerSpec
from numpy.typing import NDArray

from mt.checkpoint.folder import Checkpoint
from mt.config.schema import Activation, ExportType, ModelConfig, Norm, Positions
from mt.decoding.exported import POSITIONS
from mt.model.transformer import sinusoids
from mt.tokenizers.pair import Tokenizers
from mt.tokenizers.special_ids import SPECIALS

Weights = Mapping[str, NDArray[np.float32]]


def convert(checkpoint: Checkpoint, tokenizers: Tokenizers, kind: ExportType, folder: Path) -> int:
    """Write model.bin and its vocabularies into an existing folder, and return the model's number of positions."""
    weights = {name: tensor.numpy() for name, tensor in checkpoint.load_weights().items()}
    specification = _specification(checkpoint.config.model, weights)
    specification.register_source_vocabulary(tokenizers.source.units())
    specification.register_target_vocabulary(tokenizers.target.units())
    specification.config.add_source_eos = True
    specification.config.decoder_start_token = SPECIALS[2]
    specification.validate()
    specification.optimize(quantization=None if kind is ExportType.float32 else kind.value)
    specification.save(str(folder))
    learned = checkpoint.config.model.positions is Positions.learned
    return checkpoint.config.model.max_positions if learned else POSITIONS


def _specification(config: ModelConfig, weights: Weights) -> Any:
    spec = TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.heads,
        pre_norm=config.norm is Norm.pre,
        activation=Name.RELU if config.activation is Activation.relu else Name.GELU,
    )
    target = weights.get("target_embedding.tokens.weight", weights.get("source_embedding.tokens.weight"))
    spec.encoder.embeddings[0].weight = weights["source_embedding.tokens.weight"]
    spec.decoder.embeddings.weight = target
    spec.decoder.projection.weight = weights.get("output.weight", target)
    for side, name in ((spec.encoder, "source"), (spec.decoder, "target")):
        table = weights.get(f"{name}_embedding.positions.weight")
        side.position_encodings.encodings = sinusoids(0, POSITIONS, config.d_model).numpy() if table is None else table
    if config.norm is Norm.pre:
        _set_norm(spec.encoder.layer_norm, weights, "encoder_norm")
        _set_norm(spec.decoder.layer_norm, weights, "decoder_norm")
    for number, layer in enumerate(spec.encoder.layer):
        name = f"encoder.{number}"
        _set_attention(layer.self_attention, weights, f"{name}.attention", f"{name}.around_attention", itself=True)
        _set_feed_forward(layer.ffn, weights, name)
    for number, layer in enumerate(spec.decoder.layer):
        name = f"decoder.{number}"
        _set_attention(layer.self_attention, weights, f"{name}.self_attention", f"{name}.around_self", itself=True)
        _set_attention(layer.attention, weights, f"{name}.cross_attention", f"{name}.around_cross", itself=False)
        _set_feed_forward(layer.ffn, weights, name)
    return spec


def _set_attention(spec: Any, weights: Weights, name: str, around: str, itself: bool) -> None:
    """Set an attention layer; CTranslate2 fuses the projections of the same input."""
    query, bias = weights[f"{name}.query.weight"], weights[f"{name}.query.bias"]
    key_value = weights[f"{name}.key_value.weight"]
    no_bias = np.zeros(len(key_value), dtype=np.float32)
    if itself:
        spec.linear[0].weight = np.concatenate((query, key_value))
        spec.linear[0].bias = np.concatenate((bias, no_bias))
    else:
        spec.linear[0].weight, spec.linear[0].bias = query, bias
        spec.linear[1].weight, spec.linear[1].bias = key_value, no_bias
    _set_linear(spec.linear[-1], weights, f"{name}.output")
    _set_norm(spec.layer_norm, weights, f"{around}.norm")


def _set_feed_forward(spec: Any, weights: Weights, layer: str) -> None:
    _set_linear(spec.linear_0, weights, f"{layer}.feed_forward.inner")
    _set_linear(spec.linear_1, weights, f"{layer}.feed_forward.output")
    _set_norm(spec.layer_norm, weights, f"{layer}.around_feed_forward.norm")


def _set_linear(spec: Any, weights: Weights, name: str) -> None:
    spec.weight, spec.bias = weights[f"{name}.weight"], weights[f"{name}.bias"]


def _set_norm(spec: Any, weights: Weights, name: str) -> None:
    spec.gamma, spec.beta = weights[f"{name}.weight"], weights[f"{name}.bias"]
