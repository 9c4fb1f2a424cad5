"""Validation while training: loss, perplexity, and BLEU of real translations."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from mt.data.batching import cut_batches
from mt.data.collate import Batch, collate
from mt.data.module import Prepared
from mt.decoding.translator import Translator, validation_options
from mt.evaluation.metrics import bleu
from mt.model.transformer import Transformer
from mt.runtime import distributed
from mt.runtime.device import explained_memory
from mt.runtime.stop import Interrupted, StopRequest
from mt.training.loss import label_smoothed_loss
from mt.training.run import Run


@dataclass(frozen=True)
class Validation:
    """Of the development set: losses a token in nats, BLEU of its first `sentences` lines."""

    loss: float
    nll: float
    bleu: float
    sentences: int
    samples: list[tuple[str, str, str]]  # (source, translation, reference)

    @property
    def perplexity(self) -> float:
        return perplexity(self.nll)

    def better_than(self, best: tuple[float, float] | None) -> bool:
        """By BLEU; by loss where BLEU can't tell. What is not a number is never better."""
        if not (math.isfinite(self.nll) and math.isfinite(self.bleu)):
            return False
        return best is None or (self.bleu, -self.nll) > best


def perplexity(nll: float) -> float:
    """exp of the unsmoothed loss, or infinity where that is too large for a float."""
    return math.inf if nll > 700 else math.exp(nll)


def validate(run: Run, stop: StopRequest) -> Validation:
    """Of the run as it stands, shared out over the processes; leaves the model's mode and all random states alone.

    Raises Interrupted, in all processes, once one of them is asked to stop.
    """
    job, model, prepared, runtime = run.job, run.model, run.prepared, run.runtime
    model.eval()
    smoothed = nll = 0.0
    tokens = 0
    batches = _dev_batches(prepared, model, job.train.batch_tokens)
    memory = explained_memory("train.batch_tokens", job.train.batch_tokens)
    with torch.inference_mode(), runtime.autocast(), memory:
        for batch in batches[distributed.rank() :: distributed.world_size()]:
            if stop.wanted():
                break
            moved = batch.to(runtime.device)
            states = model(moved.source, moved.target_in)
            smoothing = job.optim.label_smoothing
            loss = label_smoothed_loss(states, model.output.weight, moved.target_out, smoothing, moved.real)
            smoothed, nll = smoothed + float(loss.smoothed), nll + float(loss.nll)
            tokens += batch.target_tokens
    model.train()
    smoothed, nll, all_tokens, stopped = distributed.total([smoothed, nll, tokens, stop.wanted()])
    if stopped:
        raise Interrupted
    count = job.train.validate_sentences or len(prepared.dev_source)
    sources, references = prepared.dev_source[:count], prepared.dev_target[:count]
    options = validation_options(job.decode, job.train.validate_beam)
    translations = Translator(model, prepared.tokenizers, options, runtime).translate(sources, stop)
    score = bleu(translations, references, job.data.target)
    samples = list(zip(sources[:3], translations[:3], references[:3], strict=True))
    return Validation(smoothed / all_tokens, nll / all_tokens, score, len(sources), samples)


def _dev_batches(prepared: Prepared, model: Transformer, batch_tokens: int) -> list[Batch]:
    longest = model.longest_input()
    sources = [ids[:longest] for ids in prepared.tokenizers.source.encode(prepared.dev_source)]
    targets = [ids[:longest] for ids in prepared.tokenizers.target.encode(prepared.dev_target)]
    source_lengths, target_lengths = (
        np.array([len(ids) + 1 for ids in side], dtype=np.int64) for side in (sources, targets)
    )
    # development sentences are never dropped, so that one may be longer than a batch should be
    limit = max(batch_tokens, int((source_lengths + target_lengths).max()))
    return [
        collate([sources[i] for i in rows], [targets[i] for i in rows])
        for rows in cut_batches(np.arange(len(sources)), source_lengths, target_lengths, limit)
    ]
