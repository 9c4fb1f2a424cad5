"""Text in, text out: a line for a line, the same whatever stands beside it, scores that rescoring confirms."""

import io
import sys
from dataclasses import replace

import pytest
import torch
from tests_support import save_checkpoint, toy_pairs

from mt.checkpoint_store import CheckpointStore
from mt.config import DecodeConfig, Positions, TranslateJob
from mt.data.collate import collate
from mt.data.tokenizer import BOS, PAD, UNK
from mt.decoding.translator import Translator, translate_command
from mt.model.transformer import Transformer
from mt.runtime.device import Runtime

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
            batch = collate([source], [torch.tensor(hypothesis.tokens[:-1], dtype=torch.long).numpy()])
            logits = model.logits(model(batch.source, batch.target_in)).log_softmax(-1)
            total = float(logits[0].gather(1, batch.target_out[0, :, None]).sum())
            assert hypothesis.log_probability == pytest.approx(total, abs=1e-3)
            assert hypothesis.score == pytest.approx(total / len(hypothesis.tokens) ** 0.6, abs=1e-3)
            assert not {PAD, UNK, BOS} & set(hypothesis.tokens)


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


@pytest.fixture
def checkpoint(toy_model, toy_tokenizers, tmp_path):
    save_checkpoint(CheckpointStore(tmp_path / "a run ü=1" / "checkpoints"), toy_model, toy_tokenizers, 1)
    return tmp_path / "a run ü=1"


def run_command(monkeypatch, capfdbinary, data, **job):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    translate_command(TranslateJob(**job))
    return capfdbinary.readouterr()


def test_a_line_for_a_line_whatever_the_bytes(checkpoint, monkeypatch, capfdbinary):
    data = b"\xef\xbb\xbfa dog\n\n\xff\xfe bad\r\nthe \xe2\x80\xa8 cat\x0b\x85\nlast without end"
    job = {"checkpoint": str(checkpoint), "decode": DecodeConfig(beam_size=2)}
    out, err = run_command(monkeypatch, capfdbinary, data, **job)
    lines = out.decode("utf-8").split("\n")
    assert len(lines) == 6 and lines[-1] == "" and lines[1] == "" and all(lines[i] for i in (0, 2, 3, 4))
    assert len(out.decode("utf-8").splitlines()) == 5
    assert b"2 lines are not UTF-8" in err
    assert lines[0] == Translator.load(checkpoint, DecodeConfig(beam_size=2)).translate(["a dog"])[0]


def test_nbest_lines_name_their_sentence_and_score(checkpoint, monkeypatch, capfdbinary):
    job = {"checkpoint": str(checkpoint), "decode": DecodeConfig(beam_size=3, nbest=2)}
    out, _ = run_command(monkeypatch, capfdbinary, b"a dog\nthe cat\n", **job)
    rows = [line.split(" ||| ") for line in out.decode().splitlines()]
    assert [row[0] for row in rows] == ["0", "0", "1", "1"]
    assert float(rows[0][2]) >= float(rows[1][2])


def test_input_and_output_files(checkpoint, tmp_path, monkeypatch, capfdbinary):
    (tmp_path / "in").write_bytes(b"a dog\n" * 3)
    job = {"checkpoint": str(checkpoint), "input": str(tmp_path / "in"), "output": str(tmp_path / "out")}
    out, _ = run_command(monkeypatch, capfdbinary, b"", **job)
    assert out == b"" and (tmp_path / "out").read_bytes().count(b"\n") == 3


def test_no_input_gives_no_output(checkpoint, monkeypatch, capfdbinary):
    assert run_command(monkeypatch, capfdbinary, b"", checkpoint=str(checkpoint))[0] == b""
