"""Converts an mt checkpoint to JoeyNMT's format, so that both tools decode with the same weights.

python joeynmt_model.py RUN JOEYNMT_MODEL_DIR

Two orders differ. In mt, a position's sinusoids are all sines, then all cosines; in JoeyNMT, they alternate. The ids of
unknown and padding are swapped.
"""

import sys
from pathlib import Path

import torch
from torch import Tensor

from mt.checkpoint.folder import Checkpoint
from mt.run_folder import find_checkpoint

ATTENTION = {"attention": "src_src_att", "self_attention": "trg_trg_att", "cross_attention": "src_trg_att"}
NORMS = {
    "around_attention": "layer_norm",
    "around_self": "x_layer_norm",
    "around_cross": "dec_layer_norm",
    "around_feed_forward": "feed_forward.layer_norm",
}


def convert(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename and reorder the weights of a pre-norm model with shared embeddings for JoeyNMT."""
    embeddings = weights["source_embedding.tokens.weight"]
    width = embeddings.shape[1]
    order = torch.stack((torch.arange(width // 2), torch.arange(width // 2, width)), 1).flatten()
    ids = torch.arange(len(embeddings))
    ids[:2] = ids[:2].flip(0)
    shared = embeddings[ids][:, order]
    found = dict.fromkeys(("src_embed.lut.weight", "trg_embed.lut.weight", "decoder.output_layer.weight"), shared)
    for name, tensor in weights.items():
        stack, _, rest = name.partition(".")
        if stack in ("encoder_norm", "decoder_norm"):
            found[f"{stack.removesuffix('_norm')}.layer_norm.{rest}"] = tensor[order]
            continue
        if stack not in ("encoder", "decoder"):
            continue
        number, part, *inner = rest.split(".")
        layer, kind = f"{stack}.layers.{number}", inner[-1]
        if part in NORMS:
            found[f"{layer}.{NORMS[part]}.{kind}"] = tensor[order]
        elif part == "feed_forward":
            if inner[0] == "inner":
                found[f"{layer}.feed_forward.pwff_layer.0.{kind}"] = _columns(tensor, order)
            else:
                found[f"{layer}.feed_forward.pwff_layer.3.{kind}"] = tensor[order]
        else:
            _attention(found, f"{layer}.{ATTENTION[part]}", inner[0], kind, tensor, order)
    return found


def _columns(tensor: Tensor, order: Tensor) -> Tensor:
    return tensor[:, order] if tensor.dim() == 2 else tensor


def _attention(found: dict[str, Tensor], name: str, matrix: str, kind: str, tensor: Tensor, order: Tensor) -> None:
    if matrix == "key_value":  # mt has no biases here
        for part, half in zip(("k", "v"), tensor.chunk(2), strict=True):
            found[f"{name}.{part}_layer.weight"] = half[:, order]
            found[f"{name}.{part}_layer.bias"] = torch.zeros(len(half))
    elif matrix == "query":
        found[f"{name}.q_layer.{kind}"] = _columns(tensor, order)
    else:
        found[f"{name}.output_layer.{kind}"] = tensor[order]


def main(run: str, folder: str) -> None:
    state = convert(Checkpoint.open(find_checkpoint(run)).load_weights())
    width = state["encoder.layer_norm.weight"].shape[0]
    table = _positions(width)
    state |= {"encoder.pe.pe": table, "decoder.pe.pe": table}
    Path(folder).mkdir(parents=True, exist_ok=True)
    torch.save(
        {"model_state": {name: tensor.contiguous() for name, tensor in state.items()}}, Path(folder) / "best.ckpt"
    )


def _positions(width: int, length: int = 5000) -> Tensor:
    """The table of sinusoids that JoeyNMT stores in the checkpoint: [1, length, width]."""
    from mt.model.transformer import sinusoids

    sines, cosines = sinusoids(0, length, width).chunk(2, dim=1)
    return torch.stack((sines, cosines), 2).flatten(1)[None]


if __name__ == "__main__":
    main(*sys.argv[1:])
