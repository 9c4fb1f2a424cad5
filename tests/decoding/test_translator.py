"""Translations are line by line, independent of neighbouring lines, and have the scores of rescoring."""

import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests_support import toy_pairs

from mt.config.schema import DecodeConfig, Positions
from mt.data.batching import collate
from mt.decoding.translator import Translator
from mt.model.transformer import Transformer
from mt.runtime.device import Runtime
from mt.runtime.stop import Interrupted, StopRequest
from mt.tokenizers.special_ids import BOS, PAD, UNK

CPU = Runtime(torch.device("cpu"), torch.float32)
LINES = [source for source, _ in toy_pairs(23, seed=5)]


def translator(model, tokenizers, **decode):
    return Translator(model, tokenizers, DecodeConfig(**decode), CPU)


def test_batches_order_and_neighbours_do_not_matter(toy_model, toy_tokenizers):
    whole = translator(toy_model, toy_tokenizers, beam_size=3, nbest=3).translate_nbest(LINES)
    for batch_tokens in (1, 150, 10**6):
        found = translator(toy_model, toy_tokenizers, beam_size=3, nbest=3, batch_tokens=batch_tokens)
        again = found.translate_nbest(LINES[::-1])[::-1]
        for one, other in zip(whole, again, strict=True):
            assert [each.text for each in one] == [each.text for each in other]
            assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("positions", list(Positions))
def test_scores_equal_teacher_forced_rescoring(toy_model, toy_tokenizers, positions):
    model = toy_model
    if positions is Positions.learned:
        torch.manual_seed(2)
        config = replace(toy_model.config, positions=positions, max_positions=50)
        model = Transformer(config, toy_tokenizers.source.size, toy_tokenizers.target.size).eval()
    found = translator(model, toy_tokenizers, beam_size=4, nbest=4, length_penalty=0.6).translate_nbest(LINES)
    for line, hypotheses in zip(LINES, found, strict=True):
        source = toy_tokenizers.source.encode([line])[0]
        assert len({hypothesis.tokens for hypothesis in hypotheses}) == 4
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        for hypothesis in hypotheses:
            batch = collate([source], [np.array(hypothesis.tokens[:-1], dtype=np.int64)], np.arange(1))
            logits = model.logits(model(batch.source, batch.target_in)).log_softmax(-1)
            total = float(logits[0].gather(1, batch.target_out[0, :, None]).sum())
            assert hypothesis.log_probability == pytest.approx(total, abs=1e-3)
            assert hypothesis.score == pytest.approx(total / len(hypothesis.tokens) ** 0.6, abs=1e-3)
            assert not {PAD, UNK, BOS} & set(hypothesis.tokens)


@pytest.mark.parametrize("nbest", [1, 3])
def test_lines_that_are_encoded_already_give_the_same(toy_model, toy_tokenizers, nbest):
    tool = translator(toy_model, toy_tokenizers, beam_size=3, nbest=nbest)
    lines = [LINES[0], "", *LINES[1:]]
    assert tool.translate_ids(toy_tokenizers.source.encode(lines)) == tool.translate_nbest(lines)
    assert tool.translate_ids([]) == tool.translate_nbest([]) == []


def test_a_request_to_stop_interrupts_between_batches(toy_model, toy_tokenizers):
    tool = translator(toy_model.train(), toy_tokenizers, beam_size=1, batch_tokens=1)  # one sentence per batch
    ids, search, stop, searched = toy_tokenizers.source.encode(LINES), tool._search, StopRequest(), []

    def stopped_in_the_third(sources):
        searched.append(sources)
        if len(searched) == 3:
            stop.heard = signal.SIGTERM
        return search(sources)

    tool._search = stopped_in_the_third
    assert len(tool.translate_ids(ids[:2], stop)) == len(searched) == 2
    searched.clear()
    with pytest.raises(Interrupted):
        tool.translate_ids(ids, stop)
    assert len(searched) == 3 and toy_model.training


def test_blank_lines_stay_blank_and_lines_keep_their_places(toy_model, toy_tokenizers):
    lines = ["", LINES[0], "   ", "\u00a0", LINES[1], "\x00", ""]
    found = translator(toy_model, toy_tokenizers).translate(lines)
    assert [bool(text) for text in found] == [False, True, False, False, True, False, False]
    assert [found[1], found[4]] == translator(toy_model, toy_tokenizers).translate(LINES[:2])


def test_special_tokens_in_the_text_are_text(toy_model, toy_tokenizers):
    ids = toy_tokenizers.source.encode(["A </s> B <pad>"])[0]
    assert min(ids) > 3 and len(ids) > 4
    assert translator(toy_model, toy_tokenizers).translate(["A </s> B"])[0]


def test_a_source_beyond_the_learned_positions_is_cut_with_a_count_and_harms_nobody(toy_model, toy_tokenizers):
    config = replace(toy_model.config, positions=Positions.learned, max_positions=30)
    model = Transformer(config, toy_tokenizers.source.size, toy_tokenizers.target.size).eval()
    tool = translator(model, toy_tokenizers, beam_size=2)
    lines = [LINES[0], " ".join(LINES), LINES[1]]
    found = tool.translate(lines)
    assert tool.too_long(lines) == 1
    assert [found[0], found[2]] == tool.translate([LINES[0], LINES[1]])
    assert found[1]


def test_the_models_mode_and_the_random_state_are_left_alone(toy_model, toy_tokenizers):
    tool = translator(toy_model, toy_tokenizers)
    expected = tool.translate(LINES[:3])
    toy_model.train()
    before = torch.get_rng_state()
    assert tool.translate(LINES[:3]) == expected
    assert toy_model.training
    assert torch.equal(before, torch.get_rng_state())


def test_the_reported_limit_is_real(toy_model, toy_tokenizers):
    tool = translator(toy_model, toy_tokenizers, beam_size=2, max_length_a=0.0, max_length_b=3)
    found = [hypotheses[0] for hypotheses in tool.translate_nbest(LINES)]
    assert all(len(hypothesis.tokens) <= 3 for hypothesis in found)
    assert [h.at_limit for h in found] == [len(h.tokens) == 3 for h in found]
