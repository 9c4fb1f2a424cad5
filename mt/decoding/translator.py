"""Text in, text out: the translator that every score comes from, and `mt translate` where no other is asked for."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from mt.checkpoint import Checkpoint
from mt.config import DecodeConfig, Device, Precision
from mt.data.collate import pad_source
from mt.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizers
from mt.decoding.search import Hypothesis, Settings, search
from mt.decoding.translation import Translation
from mt.model.transformer import Transformer
from mt.runtime import distributed
from mt.runtime.device import Runtime, explained_memory, start
from mt.runtime.stop import Interrupted, StopRequest


class Translator:
    """A model, its tokenizers and decoding options. A translation never depends on its neighbours."""

    def __init__(self, model: Transformer, tokenizers: Tokenizers, decode: DecodeConfig, runtime: Runtime) -> None:
        self.model, self.tokenizers, self.decode, self.runtime = model, tokenizers, decode, runtime

    @classmethod
    def load(
        cls,
        path: str | Path,
        decode: DecodeConfig | None = None,
        device: Device | str = Device.auto,
        precision: Precision | str = Precision.fp32,
        threads: int = 0,
    ) -> "Translator":
        """From a run folder (its average where there is one, else its best) or a checkpoint folder.

        `decode`: None takes the options that the checkpoint was trained with. Sets torch's threads (0: all cores)
        and the precision of its products for the whole process. Raises UserError for no checkpoint.
        """
        runtime = start(Device(device), Precision(precision), threads)
        checkpoint = Checkpoint.open(path)
        model = checkpoint.load_model().to(runtime.device)
        return cls(model, checkpoint.load_tokenizers(), decode or checkpoint.config.decode, runtime)

    def describe(self) -> str:
        """E.g. "cpu, 2 threads, float32 products"."""
        return self.runtime.describe()

    def translate(self, lines: Sequence[str], stop: StopRequest | None = None) -> list[str]:
        """The best translation of each line, in order; an empty line for a blank one."""
        return [best[0].text for best in self.translate_nbest(lines, stop)]

    def translate_nbest(self, lines: Sequence[str], stop: StopRequest | None = None) -> list[list[Translation]]:
        """Up to decode.nbest different hypotheses of each line, best first; at least one.

        Processes that work together call this with the same lines, share the batches out, and all get everything.
        Raises Interrupted, in all of them, once `stop` is wanted in one.
        """
        sources = self.tokenizers.source.encode(lines)
        limit = self.model.longest_input()
        found: list[list[Translation]] = [[Translation("", 0.0, 0.0, (EOS,), False)] for _ in lines]
        was_training = self.model.training
        self.model.eval()
        own: dict[int, list[Translation]] = {}
        interrupted = False
        try:
            # The batches are those of one process, so that even the last digit of a score is the same
            batches = list(self._batches([min(len(ids), limit) for ids in sources]))
            for rows in batches[distributed.rank() :: distributed.world_size()]:
                if stop is not None and stop.wanted():
                    interrupted = True
                    break
                for row, hypotheses in zip(rows, self._search([sources[row][:limit] for row in rows]), strict=True):
                    if hypotheses:  # none only where a diverged model's scores are not numbers
                        own[row] = [self._translation(each) for each in hypotheses[: self.decode.nbest]]
        finally:
            self.model.train(was_training)
        for share, was_interrupted in distributed.gather((own, interrupted)):
            interrupted |= was_interrupted
            for row, translations in share.items():
                found[row] = translations
        if interrupted:
            raise Interrupted
        return found

    def too_long(self, lines: Sequence[str]) -> int:
        """How many lines are longer than the model's positions, so that their ends are not translated."""
        limit = self.model.longest_input()
        return 0 if limit == sys.maxsize else sum(len(ids) > limit for ids in self.tokenizers.source.encode(lines))

    def _batches(self, lengths: list[int]) -> Iterator[list[int]]:
        """Rows of similar length, longest first, within decode.batch_tokens; blank lines are in none."""
        order = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: -lengths[row])
        while order:
            widest = (lengths[order[0]] + 1) * self.decode.beam_size
            size = max(1, self.decode.batch_tokens // widest)
            yield order[:size]
            order = order[size:]

    def _search(self, sources: list[NDArray[np.integer]]) -> list[list[Hypothesis]]:
        decode, device = self.decode, self.runtime.device
        settings = Settings(
            beam_size=decode.beam_size,
            length_penalty=decode.length_penalty,
            bos=BOS,
            eos=EOS,
            forbidden=(PAD, UNK, BOS),
            min_length=decode.min_length + 1,
        )
        limits = [int(decode.max_length_a * len(ids) + decode.max_length_b) for ids in sources]
        limits = [min(limit, self.model.longest_input() + 1) for limit in limits]
        memory = explained_memory("decode.batch_tokens", decode.batch_tokens)
        with torch.inference_mode(), self.runtime.autocast(), memory:
            state = self.model.start(pad_source(sources).to(device))
            return search(self.model.step, state, torch.tensor(limits, device=device), settings)

    def _translation(self, hypothesis: Hypothesis) -> Translation:
        return Translation(
            self.tokenizers.target.decode(hypothesis.tokens[:-1]),
            hypothesis.score,
            hypothesis.log_probability,
            hypothesis.tokens,
            hypothesis.at_limit,
        )


def validation_options(decode: DecodeConfig, beam_size: int) -> DecodeConfig:
    """The same options with another beam size and one hypothesis: how translations are made while training."""
    return replace(decode, beam_size=beam_size, nbest=1)
