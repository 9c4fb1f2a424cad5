"""The encoder-decoder Transformer (Vaswani et al. 2017): positions, layers, encoder, decoder, decoding state.

B sentences, S source length, T target length, D model width, V target vocabulary.
"""

import math
import sys
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mt.config.schema import Activation, Init, ModelConfig, Norm, Positions, Tie
from mt.errors import UserError
from mt.model.attention import Attention, KeyValues
from mt.tokenizers.special_ids import PAD


def sinusoids(start: int, length: int, d_model: int, device: torch.device | None = None) -> Tensor:
    """Encodings (section 3.5) of `length` positions from `start`: all sines, then all cosines, [length, D]."""
    position = torch.arange(start, start + length, dtype=torch.float32, device=device)
    even = torch.arange(0, d_model, 2, dtype=torch.float32, device=device)
    angle = position[:, None] * torch.exp(even * (-math.log(10000.0) / d_model))
    return torch.cat((angle.sin(), angle.cos()), dim=1)


class Dropout(nn.Module):
    """Dropout. On a CPU, its probability is round(256 rate)/256: one 64-bit draw per eight elements is 4x as fast."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.dropped = min(255, round(256 * rate))  # byte values below this are dropped

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        if x.device.type != "cpu":
            return nn.functional.dropout(x, self.rate)
        words = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
        kept = words.view(torch.uint8)[: x.numel()].view(x.shape) >= self.dropped
        return x * (kept * (256 / (256 - self.dropped))).to(x.dtype)


class Embedding(nn.Module):
    """Token embeddings times sqrt(D) plus positions, then dropout. Ids [B, T] to [B, T, D]."""

    def __init__(self, config: ModelConfig, size: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size, config.d_model, padding_idx=PAD)
        learned = config.positions is Positions.learned
        self.positions = nn.Embedding(config.max_positions, config.d_model) if learned else None
        self.dropout = Dropout(config.dropout)
        self.scale = math.sqrt(config.d_model)

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """`start` is the position of the first column."""
        length = ids.shape[1]
        if self.positions is None:
            positions = sinusoids(start, length, self.tokens.embedding_dim, ids.device)
        elif start + length <= self.positions.num_embeddings:
            positions = self.positions.weight[start : start + length]
        else:
            raise ValueError(f"{start + length} positions, but the table has {self.positions.num_embeddings}")
        return self.dropout(self.tokens(ids) * self.scale + positions)


class FeedForward(nn.Module):
    """Feed-forward network (section 3.3)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.d_model, config.d_ff)
        self.output = nn.Linear(config.d_ff, config.d_model)
        self.activation = F.relu if config.activation is Activation.relu else F.gelu

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.activation(self.inner(x)))


class Residual(nn.Module):
    """Normalization, dropout on the output of a sublayer, and the residual sum around it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)
        self.pre = config.norm is Norm.pre

    def enter(self, x: Tensor) -> Tensor:
        """The input of the sublayer."""
        return self.norm(x) if self.pre else x

    def leave(self, x: Tensor, sublayer_output: Tensor) -> Tensor:
        """The residual stream after the sublayer."""
        total = x + self.dropout(sublayer_output)
        return total if self.pre else self.norm(total)


class EncoderLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention = Attention(config.d_model, config.heads)
        self.feed_forward = FeedForward(config)
        self.around_attention = Residual(config)
        self.around_feed_forward = Residual(config)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        inner = self.around_attention.enter(x)
        x = self.around_attention.leave(x, self.attention(inner, self.attention.project(inner), mask))
        inner = self.around_feed_forward.enter(x)
        return self.around_feed_forward.leave(x, self.feed_forward(inner))


class DecoderLayer(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = Attention(config.d_model, config.heads)
        self.cross_attention = Attention(config.d_model, config.heads)
        self.feed_forward = FeedForward(config)
        self.around_self = Residual(config)
        self.around_cross = Residual(config)
        self.around_feed_forward = Residual(config)

    def forward(
        self, x: Tensor, memory: KeyValues, mask: Tensor | None, past: KeyValues | None
    ) -> tuple[Tensor, KeyValues]:
        """Also returns the self-attention keys and values, past ones first. Without `past`, x is the whole prefix."""
        inner = self.around_self.enter(x)
        present = self.self_attention.project(inner)
        if past is not None:
            present = past.append(present)
        x = self.around_self.leave(x, self.self_attention(inner, present, None, causal=past is None))
        inner = self.around_cross.enter(x)
        x = self.around_cross.leave(x, self.cross_attention(inner, memory, mask))
        inner = self.around_feed_forward.enter(x)
        return self.around_feed_forward.leave(x, self.feed_forward(inner)), present


@dataclass(frozen=True)
class Memory:
    """Encoded sources: their keys and values in each decoder layer, and their mask."""

    layers: tuple[KeyValues, ...]
    mask: Tensor  # [B, 1, 1, S]
    sentence: Tensor  # [B] the sentence of each row; rows of the same sentence are equal

    def select(self, rows: Tensor) -> "Memory":
        """The given rows, in that order; nothing is copied if beams only changed places within their sentence."""
        sentence = self.sentence.index_select(0, rows)
        if torch.equal(sentence, self.sentence):
            return self
        layers = tuple(layer.select(rows) for layer in self.layers)
        return Memory(layers, self.mask.index_select(0, rows), sentence)


@dataclass(frozen=True)
class DecoderState:
    """Everything that the next decoding step needs from the steps before it."""

    memory: Memory
    past: tuple[KeyValues, ...]  # one per layer; empty before the first step

    def select(self, rows: Tensor) -> "DecoderState":
        """The given rows, in that order; a row may occur several times (beams) or not at all (finished)."""
        return DecoderState(self.memory.select(rows), tuple(layer.select(rows) for layer in self.past))


class Transformer(nn.Module):
    """Maps ids to decoder states; `logits` maps states to scores over the target vocabulary."""

    def __init__(self, config: ModelConfig, source_size: int, target_size: int) -> None:
        """Vocabulary sizes include special ids. Raises UserError if the configuration is invalid."""
        super().__init__()
        if config.tie is Tie.all and source_size != target_size:
            raise UserError(f"model.tie=all needs one vocabulary, but the sizes are {source_size} and {target_size}")
        self.config = config
        self.source_embedding = Embedding(config, source_size)
        self.target_embedding = Embedding(config, target_size)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        pre = config.norm is Norm.pre  # pre-norm layers do not normalize the residual stream
        self.encoder_norm = nn.LayerNorm(config.d_model) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model) if pre else nn.Identity()
        self.output = nn.Linear(config.d_model, target_size, bias=False)
        if config.tie is Tie.all:
            self.source_embedding.tokens.weight = self.target_embedding.tokens.weight
        if config.tie is not Tie.none:
            self.output.weight = self.target_embedding.tokens.weight
        self.initialize()

    @torch.no_grad()
    def initialize(self) -> None:
        """Xavier for each separate projection, zero biases, embeddings with standard deviation D^-0.5."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
                nn.init.xavier_uniform_(module.weight)
        for module in self.modules():  # a second loop, to keep the order of random draws
            if isinstance(module, Attention):
                for part in module.key_value.weight.chunk(2):
                    nn.init.xavier_uniform_(part)
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.d_model**-0.5)
                if module.padding_idx is not None:
                    module.weight[module.padding_idx].zero_()
        # Scale by 1/sqrt(N) for N residual additions in the stack (GPT-2, Radford et al. 2019, section 2.3)
        for stack, sublayers in ((self.encoder, 2), (self.decoder, 3)) if self.config.init is Init.depth_scaled else ():
            for module in stack.modules():
                if isinstance(module, Attention | FeedForward):
                    module.output.weight.mul_((sublayers * len(stack)) ** -0.5)

    def encode(self, source: Tensor) -> Memory:
        """Encode source ids [B, S] (with EOS, padded) as keys and values for the decoder."""
        mask = (source != PAD)[:, None, None, :]
        x = self.source_embedding(source)
        for layer in self.encoder:
            x = layer(x, mask)
        x = self.encoder_norm(x)
        attentions = [layer.cross_attention for layer in self.decoder if isinstance(layer, DecoderLayer)]
        layers = tuple(attention.project(x) for attention in attentions)
        return Memory(layers, mask, torch.arange(len(source), device=source.device))

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        """Teacher forcing: decoder states [B, T, D] for source [B, S] and target [B, T], which begins with BOS."""
        return self._decode(target_in, self.start(source))[0]

    def start(self, source: Tensor) -> DecoderState:
        """Encode sources [B, S]; returns the state before the first step."""
        return DecoderState(self.encode(source), ())

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """The logits [B, V] and the state that follow the newest token [B] of each row."""
        states, state = self._decode(tokens[:, None], state)
        return self.logits(states[:, -1]), state

    def logits(self, states: Tensor) -> Tensor:
        """Decoder states [..., D] to unnormalized scores [..., V]."""
        return self.output(states)

    def _decode(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        x = self.target_embedding(tokens, start=state.past[0].keys.shape[2] if state.past else 0)
        present = []
        for number, layer in enumerate(self.decoder):
            past = state.past[number] if state.past else None
            x, keys_and_values = layer(x, state.memory.layers[number], state.memory.mask, past)
            present.append(keys_and_values)
        return self.decoder_norm(x), DecoderState(state.memory, tuple(present))

    def longest_input(self) -> int:
        """The maximum length of a sentence in tokens, without EOS."""
        learned = self.config.positions is Positions.learned
        return self.config.max_positions - 1 if learned else sys.maxsize
