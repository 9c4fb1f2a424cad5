"""Training tokenizers is reproducible, samples uniformly, and rejects impossible settings."""

from dataclasses import replace

import pytest
from tokenizers_support import CONFIG, SOURCE, TARGET, same, train

from mt.config.schema import SubwordType
from mt.errors import UserError
from mt.tokenizers import training


def test_training_twice_gives_the_same_bytes(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        train(replace(CONFIG, max_sentences=100)).save(tmp_path / folder)
    one, two = ((tmp_path / folder / "tokenizer.model").read_bytes() for folder in "ab")
    assert one == two


def test_joint_is_one_object_and_separate_sides_differ():
    joint, separate = train(CONFIG), train(replace(CONFIG, joint=False))
    assert joint.joint and joint.source is joint.target
    assert not separate.joint and not same(separate.source.encode(SOURCE), separate.target.encode(SOURCE))


@pytest.mark.parametrize(
    ("symbols", "words"),
    [([""], "blank"), (["</s>"], "</s> is reserved"), (["x1", "x1"], "x1 is listed twice")],
)
def test_impossible_symbols_are_refused(symbols, words):
    with pytest.raises(UserError, match=words):
        train(replace(CONFIG, symbols=symbols))


def test_a_vocabulary_larger_than_the_text_has_the_real_size_and_one_warning():
    for kind in SubwordType:
        log: list[str] = []
        made = train(replace(CONFIG, type=kind, vocab_size=8000), log=log.append)
        assert made.source.size == len(made.source._processor) < 8000
        assert [line for line in log if "warning" in line and str(made.source.size) in line] == log[-1:]


@pytest.mark.parametrize("byte_fallback", [True, False])
def test_a_vocabulary_too_small_names_both_sizes_and_the_allowed_one_works(byte_fallback, capfd):
    config = replace(CONFIG, vocab_size=20, byte_fallback=byte_fallback)
    with pytest.raises(UserError, match=r"vocab_size=20 .*at least \d+") as error:
        train(config)
    least = 4 + len({*"".join(SOURCE + TARGET).replace(" ", "▁")}) + 256 * byte_fallback
    assert f"at least {least}, for" in str(error.value) and "\n" not in str(error.value)
    assert train(replace(config, vocab_size=least)).source.size == least
    assert capfd.readouterr() == ("", "")


def test_at_most_max_sentences_are_drawn_from_the_whole_stream_by_seed():
    log: list[str] = []
    lines = ["", *map(str, range(1000))]
    drawn = training._sample(iter(lines), "source", 50, 1, log.append)
    assert log == ["tokenizer: sampled 50 of 1000 source lines"]
    assert len(set(drawn)) == 50 and drawn == sorted(drawn, key=int)
    assert drawn == training._sample(iter(lines), "source", 50, 1, log.append)
    assert drawn != training._sample(iter(lines), "source", 50, 2, log.append)
    hits = sum(int(line) >= 500 for s in range(100) for line in training._sample(lines, "", 50, s, log.append))
    assert hits == pytest.approx(2500, abs=150)  # four standard deviations


def test_a_sample_has_a_limit_of_characters_too_and_stays_a_fair_one(monkeypatch):
    monkeypatch.setattr(training, "MOST_CHARACTERS", 300)
    lines = [f"{number:03}" for number in range(1000)]
    draws = [training._sample(iter(lines), "", 10**6, seed, lambda line: None) for seed in range(200)]
    assert all(len(drawn) == 100 and drawn == sorted(set(drawn)) for drawn in draws)
    late = sum(int(line) >= 500 for drawn in draws for line in drawn)
    assert 9500 < late < 10500  # 10,000 expected, standard deviation about 67


def test_long_lines_are_learned_from_and_no_text_is_an_error():
    only = ["zq " * 4000]  # 12,000 bytes; by default, SentencePiece drops lines above 4,192
    assert train(replace(CONFIG, vocab_size=300), source=only, target=only).source.size > 260
    with pytest.raises(UserError, match="target side has no training text"):
        train(CONFIG, target=["", "  "])
