"""Translates text with mt's own search, which all scores come from."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from mt.checkpoint.folder import Checkpoint
from mt.config.schema import DecodeConfig, Device, Precision
from mt.data.batching import pad
from mt.decoding.search import BeamSearchConfig, Hypothesis, search
from mt.decoding.translation import Translation
from mt.model.transformer import Transformer
from mt.run_folder import find_checkpoint
from mt.runtime import distributed
from mt.runtime.device import Runtime, explain_out_of_memory, start_runtime
from mt.runtime.stop import Interrupted, StopRequest
from mt.tokenizers.pair import Tokenizers
from mt.tokenizers.special_ids import BOS, EOS, PAD, UNK


class Translator:
    """A model, its tokenizers and decoding options. A translation is independent of its batch."""

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
        """Load a run folder (its average, if it has one, else its best checkpoint) or a checkpoint folder.

        decode=None uses the checkpoint's options. Sets torch's threads (0: all cores) and the precision of matrix
        multiplications for the whole process. Raises UserError if there is no checkpoint.
        """
        runtime = start_runtime(Device(device), Precision(precision), threads)
        return cls.of(Checkpoint.open(find_checkpoint(path)), decode, runtime)

    @classmethod
    def of(cls, checkpoint: Checkpoint, decode: DecodeConfig | None, runtime: Runtime) -> "Translator":
        """The translator for an open checkpoint."""
        model = checkpoint.load_model().to(runtime.device)
        return cls(model, checkpoint.load_tokenizers(), decode or checkpoint.config.decode, runtime)

    def describe(self) -> str:
        """For example "cpu, 2 threads, float32"."""
        return self.runtime.describe()

    def translate(self, lines: Sequence[str]) -> list[str]:
        """The best translation of each line, in order; blank lines give empty ones."""
        return [best[0].text for best in self.translate_nbest(lines)]

    def translate_nbest(self, lines: Sequence[str]) -> list[list[Translation]]:
        """Up to decode.nbest different hypotheses per line, best first; at least one. The processes share the work."""
        return self.translate_ids(self.tokenizers.source.encode(lines))

    def translate_ids(
        self, sources: Sequence[NDArray[np.integer]], stop: StopRequest | None = None
    ) -> list[list[Translation]]:
        """`translate_nbest` for encoded lines. Raises Interrupted in all processes if any of them was asked to stop."""
        limit = self.model.longest_input()
        found: list[list[Translation]] = [[Translation("", 0.0, 0.0, (EOS,), False)] for _ in sources]
        was_training = self.model.training
        self.model.eval()
        own: dict[int, list[Translation]] = {}
        interrupted = False
        try:
            # The same batches as in a single process, so that not even the last digit of a score differs
            batches = list(self._batches([min(len(ids), limit) for ids in sources]))
            for rows in batches[distributed.rank() :: distributed.world_size()]:
                if stop is not None and stop.wanted():
                    interrupted = True
                    break
                for row, hypotheses in zip(rows, self._search([sources[row][:limit] for row in rows]), strict=True):
                    if hypotheses:  # there are none if a diverged model gives NaN scores
                        own[row] = [
                            Translation(self.tokenizers.target.decode(each.tokens[:-1]), **vars(each))
                            for each in hypotheses[: self.decode.nbest]
                        ]
        finally:
            self.model.train(was_training)
        for share, was_interrupted in distributed.all_gather((own, interrupted)):
            interrupted |= was_interrupted
            for row, translations in share.items():
                found[row] = translations
        if interrupted:
            raise Interrupted
        return found

    def too_long(self, lines: Sequence[str]) -> int:
        """The number of lines that exceed the model's maximum length, and so are truncated."""
        limit = self.model.longest_input()
        return 0 if limit == sys.maxsize else sum(len(ids) > limit for ids in self.tokenizers.source.encode(lines))

    def _batches(self, lengths: list[int]) -> Iterator[list[int]]:
        """Rows of similar length, longest first, up to decode.batch_tokens; blank lines are left out."""
        order = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: -lengths[row])
        while order:
            widest = (lengths[order[0]] + 1) * self.decode.beam_size
            size = max(1, self.decode.batch_tokens // widest)
            yield order[:size]
            order = order[size:]

    def _search(self, sources: list[NDArray[np.integer]]) -> list[list[Hypothesis]]:
        decode, device = self.decode, self.runtime.device
        config = BeamSearchConfig(
            beam_size=decode.beam_size,
            length_penalty=decode.length_penalty,
            bos=BOS,
            eos=EOS,
            forbidden=(PAD, UNK, BOS),
            min_length=decode.min_length + 1,
        )
        limits = [int(decode.max_length_a * len(ids) + decode.max_length_b) for ids in sources]
        limits = [min(limit, self.model.longest_input() + 1) for limit in limits]
        memory = explain_out_of_memory("decode.batch_tokens", decode.batch_tokens)
        with torch.inference_mode(), self.runtime.autocast(), memory:
            state = self.model.start(pad(sources).to(device))
            return search(self.model.step, state, torch.tensor(limits, device=device), config)
