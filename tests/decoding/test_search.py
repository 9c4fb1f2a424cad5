"""Beam search compared with exhaustive search on a table model, and its invariances."""

import itertools
import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from mt.decoding.search import BeamSearchConfig, search

BOS, EOS = 2, 3
VOCABULARY = 5  # pad, unk, bos, eos and a word; unk is allowed, so there are two words and eos
CONFIG = BeamSearchConfig(beam_size=1, length_penalty=0.0, bos=BOS, eos=EOS, forbidden=(0, BOS))


@dataclass(frozen=True)
class TableState:
    """The whole prefix of each row and the number of its table, so that a missing reordering shows at once."""

    table: Tensor  # [R]
    prefix: Tensor  # [R, length]

    def select(self, rows: Tensor) -> "TableState":
        return TableState(self.table[rows], self.prefix[rows])


class TableModel:
    """Logits that are a fixed random function of (table, whole prefix)."""

    def __init__(self, seed: int, scale: float = 2.0) -> None:
        self.seed, self.scale = seed, scale
        self.rows = 0

    def logits(self, table: int, prefix: tuple[int, ...]) -> Tensor:
        digits = 0
        for token in (table, *prefix):
            digits = (digits * 7 + token + 1) % 2**61
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + digits)
        return self.scale * torch.randn(VOCABULARY, generator=generator)

    def step(self, tokens: Tensor, state: TableState) -> tuple[Tensor, TableState]:
        self.rows += len(tokens)
        prefix = torch.cat((state.prefix, tokens[:, None]), 1)
        pairs = zip(state.table.tolist(), prefix.tolist(), strict=True)
        return torch.stack([self.logits(table, tuple(row)) for table, row in pairs]), TableState(state.table, prefix)

    def log_probability(self, table: int, tokens: tuple[int, ...]) -> float:
        total, prefix = 0.0, (BOS,)
        for token in tokens:
            total += float(self.logits(table, prefix).log_softmax(0)[token])
            prefix = (*prefix, token)
        return total

    def start(self, tables: list[int]) -> TableState:
        return TableState(torch.tensor(tables), torch.zeros((len(tables), 0), dtype=torch.long))

    def exhaustive(
        self, table: int, longest: int, alpha: float, shortest: int = 1
    ) -> list[tuple[float, tuple[int, ...]]]:
        found = []
        for length in range(shortest, longest + 1):
            for words in itertools.product((1, 4), repeat=length - 1):
                tokens = (*words, EOS)
                found.append((self.log_probability(table, tokens) / length**alpha, tokens))
        return sorted(found, reverse=True)


def run(model, tables, limits, **options):
    return search(model.step, model.start(tables), torch.tensor(limits), replace(CONFIG, **options))


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_beam_over_all_prefixes_is_exhaustive_search(seed, alpha):
    model = TableModel(seed)
    limits = [6, 3, 1]
    for table, found in enumerate(run(model, [0, 1, 2], limits, beam_size=64, length_penalty=alpha)):
        expected = model.exhaustive(table, limits[table], alpha)
        assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens in expected]
        assert [h.score for h in found] == pytest.approx([score for score, _ in expected], abs=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_a_beam_of_one_is_greedy(seed):
    model = TableModel(seed)
    for table, found in enumerate(run(model, [0, 1, 2], [8, 8, 8])):
        prefix = (BOS,)
        while prefix[-1] != EOS:
            logits = model.logits(table, prefix)
            logits[[0, BOS]] = -math.inf
            prefix = (*prefix, EOS if len(prefix) == 8 else int(logits.argmax()))
        assert [hypothesis.tokens for hypothesis in found] == [prefix[1:]]


@pytest.mark.parametrize("beam", [1, 2, 3, 5])
def test_scores_are_those_of_rescoring_and_hypotheses_differ(beam):
    model = TableModel(11)
    for table, found in enumerate(run(model, list(range(6)), [7] * 6, beam_size=beam, length_penalty=0.7)):
        assert len({hypothesis.tokens for hypothesis in found}) == len(found) == beam
        assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
        for hypothesis in found:
            exact = model.log_probability(table, hypothesis.tokens)
            assert hypothesis.log_probability == pytest.approx(exact, abs=1e-5)
            assert hypothesis.score == pytest.approx(exact / len(hypothesis.tokens) ** 0.7, abs=1e-5)
            assert hypothesis.tokens.count(EOS) == 1 and not {0, BOS} & set(hypothesis.tokens)


def test_a_sentence_does_not_depend_on_its_neighbours():
    model = TableModel(4)
    limits = [3, 9, 5, 7]
    together = run(model, [0, 1, 2, 3], limits, beam_size=3, length_penalty=1.0)
    backwards = run(model, [3, 2, 1, 0], limits[::-1], beam_size=3, length_penalty=1.0)[::-1]
    alone = [run(model, [t], [limits[t]], beam_size=3, length_penalty=1.0)[0] for t in range(4)]
    assert together == backwards == alone


def test_the_length_penalty_favours_the_longer_of_the_textbook_pair():
    """Log-probabilities -4 (length 4) and -4.5 (length 6): alpha 0 prefers the first, alpha 1 the second."""
    first, second = (4, 4, 4, EOS), (1, 4, 4, 4, 4, EOS)
    steps = {first: -4.0, second: -4.5}

    def step(tokens, state):
        prefix = torch.cat((state.prefix, tokens[:, None]), 1)
        logits = torch.full((len(prefix), VOCABULARY), -1e9)
        logits[:, 0] = math.log1p(-(math.exp(-4.0) + math.exp(-4.5)))  # the remaining probability, on a forbidden token
        for row, done in enumerate(prefix[:, 1:].tolist()):
            for path, total in steps.items():
                if path[: len(done)] == tuple(done) and len(done) < len(path):
                    logits[row, path[len(done)]] = total if not done else 0.0
                    if done:
                        logits[row, 0] = -1e9
        return logits, TableState(state.table, prefix)

    start = TableModel(0).start([0])
    best = [
        search(step, start, torch.tensor([9]), replace(CONFIG, beam_size=2, length_penalty=alpha))[0][0]
        for alpha in (0.0, 1.0)
    ]
    assert [hypothesis.tokens for hypothesis in best] == [first, second]
    assert [hypothesis.score for hypothesis in best] == pytest.approx([-4.0, -0.75], abs=1e-4)


def test_lengths_are_kept_and_the_forced_end_is_marked():
    model = TableModel(6)
    for limit, shortest in ((4, 1), (4, 3), (4, 4), (2, 9)):
        for found in run(model, [0, 1], [limit] * 2, beam_size=4, min_length=shortest):
            assert found
            for hypothesis in found:
                assert min(shortest, limit) <= len(hypothesis.tokens) <= limit
                assert hypothesis.at_limit == (len(hypothesis.tokens) == limit)


def test_finished_sentences_leave_the_batch():
    model = TableModel(4)
    found = run(model, [0] + [1] * 5, [40] + [2] * 5, beam_size=1)
    assert model.rows == sum(len(hypotheses[0].tokens) for hypotheses in found)


def test_scores_that_are_no_numbers_end_the_search():
    model = TableModel(4)

    def step(tokens, state):
        logits, state = model.step(tokens, state)
        return logits * math.nan, state

    assert search(step, model.start([0, 1]), torch.tensor([4, 4]), replace(CONFIG, beam_size=2)) == [[], []]


def test_half_precision_logits_are_summed_in_float32():
    model = TableModel(9, scale=0.5)

    def step(tokens, state):
        logits, state = model.step(tokens, state)
        return logits.bfloat16(), state

    found = search(step, model.start([0]), torch.tensor([60]), replace(CONFIG, min_length=60))[0][0]
    total, prefix = 0.0, (BOS,)
    for token in found.tokens:
        total += float(model.logits(0, prefix).bfloat16().double().log_softmax(0)[token])
        prefix = (*prefix, token)
    assert found.log_probability == pytest.approx(total, abs=1e-3)
