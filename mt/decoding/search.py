"""Beam search for any model that has a step function and a state whose rows can be selected.

B sentences, k beam slots per sentence, R live rows (one per live slot), V vocabulary. A finished hypothesis gives up
its slot, so that a beam of 1 is greedy search; a sentence without live slots leaves the batch. The score is
log-probability / length^length_penalty, EOS counted in both, as in fairseq, Marian and CTranslate2.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


class State(Protocol):
    """The state of a step function between steps, with one row per live hypothesis."""

    def select(self, rows: Tensor) -> Any:
        """The state of these rows [R'], in that order; rows may repeat."""


StepFunction = Callable[[Tensor, Any], tuple[Tensor, Any]]
"""(newest token of each row [R], state) -> (logits of the next one [R, V], new state). Logits may be modified."""


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation."""

    tokens: tuple[int, ...]  # with EOS, without BOS
    log_probability: float
    score: float
    at_limit: bool  # EOS was forced by the length limit


@dataclass(frozen=True)
class BeamSearchConfig:
    """The parameters of the search. Lengths count EOS."""

    beam_size: int
    length_penalty: float
    bos: int
    eos: int
    forbidden: tuple[int, ...] = ()  # never generated, but their probabilities count in the normalization
    min_length: int = 1


@torch.inference_mode()
def search(step: StepFunction, state: State, max_lengths: Tensor, config: BeamSearchConfig) -> list[list[Hypothesis]]:
    """At most beam_size hypotheses per sentence, best first; `max_lengths` [B] limits each sentence."""
    beam = config.beam_size
    device = max_lengths.device
    finished: list[list[Hypothesis]] = [[] for _ in max_lengths]
    sentence = torch.arange(len(max_lengths), device=device)  # [R] the sentence of each row
    scores = torch.zeros(len(max_lengths), device=device)  # [R] log-probability so far
    history = torch.full((len(max_lengths), 1), config.bos, device=device)  # [R, 1 + length]
    slots = torch.full((len(max_lengths),), beam, device=device)  # [B] live slots
    length = 0
    while len(sentence):
        length += 1
        logits, state = step(history[:, -1], state)
        token_scores, tokens = _best_tokens(logits, length, max_lengths[sentence], beam, config)
        totals = scores[:, None] + token_scores  # [R, k]
        row, column = _best_per_sentence(totals, sentence, slots)
        token, total = tokens[row, column], totals[row, column]
        ended = token == config.eos
        if ended.any():
            done = row[ended]
            prefixes, log_probabilities = history[done, 1:].tolist(), total[ended].tolist()
            for number, prefix, each in zip(sentence[done].tolist(), prefixes, log_probabilities, strict=True):
                score, at_limit = each / length**config.length_penalty, length >= int(max_lengths[number])
                finished[number].append(Hypothesis((*prefix, config.eos), each, score, at_limit))
            slots = slots - torch.bincount(sentence[done], minlength=len(slots))
        row, token, scores = row[~ended], token[~ended], total[~ended]
        history = torch.cat((history[row], token[:, None]), 1)
        if len(row) != len(sentence) or not torch.equal(row, torch.arange(len(row), device=device)):
            state = state.select(row)
        sentence = sentence[row]
    return [sorted(found, key=lambda hypothesis: -hypothesis.score) for found in finished]


def _best_tokens(
    logits: Tensor, length: int, limits: Tensor, beam: int, config: BeamSearchConfig
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and ids of the k best allowed tokens of each row, [R, k] both; -inf marks forbidden tokens."""
    logits = logits.float()
    normalizer = logits.logsumexp(1, keepdim=True)
    logits[:, list(config.forbidden)] = float("-inf")
    if length < config.min_length:
        logits[length < limits, config.eos] = float("-inf")
    if length >= limits.min():  # rarely true; the test saves a pass over all logits
        ended = length >= limits
        eos = logits[ended, config.eos]
        logits[ended] = float("-inf")
        logits[ended, config.eos] = eos
    best, tokens = logits.topk(min(beam, logits.shape[1]), dim=1)
    return best - normalizer, tokens


def _best_per_sentence(totals: Tensor, sentence: Tensor, slots: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column of each sentence's best candidates, one per slot; by sentence, best first."""
    row = torch.arange(len(totals), device=totals.device).repeat_interleave(totals.shape[1])
    flat = totals.flatten()
    # By score, then stably by sentence: the candidates of a sentence are adjacent, best first
    order = flat.argsort(descending=True, stable=True)
    order = order[sentence[row[order]].argsort(stable=True)]
    owner = sentence[row[order]]
    first = torch.searchsorted(owner, owner)  # where each candidate's sentence begins
    rank = torch.arange(len(owner), device=owner.device) - first
    chosen = order[(rank < slots[owner]) & (flat[order] > float("-inf"))]
    return row[chosen], chosen % totals.shape[1]
