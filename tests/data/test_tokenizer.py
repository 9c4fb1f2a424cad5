"""Tokenizers against SentencePiece's own answers, hand-made vocabularies and other processes."""

import hashlib
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mt.config import SubwordType, TokenizerConfig, TokenizerKind
from mt.data.tokenizer import (
    BOS,
    EOS,
    PAD,
    THREADS,
    UNK,
    Tokenizer,
    Tokenizers,
    load_model,
    round_trip,
    unknown_share,
)
from mt.data.tokenizer_training import train_tokenizers
from mt.errors import UserError

LETTERS = "abcdefghijklmnoprstuvwzäöü"


def made_up(count: int, seed: int) -> list[str]:
    """Lines of eight words out of 150 that nobody speaks."""
    generator = random.Random(seed)
    words = ["".join(generator.choices(LETTERS, k=generator.randint(2, 9))) for _ in range(150)]
    return [" ".join(generator.choices(words, k=8)) for _ in range(count)]


SOURCE, TARGET = made_up(300, 1), made_up(307, 2)
CONFIG = TokenizerConfig(vocab_size=400)
WORDS = TokenizerConfig(kind=TokenizerKind.word, vocab_size=100, min_frequency=2)


def train(config: TokenizerConfig, source=SOURCE, target=TARGET, seed=1, log=None) -> Tokenizers:
    return train_tokenizers(
        lambda: iter(source), lambda: iter(target), config, "en", "de", seed, log or (lambda line: None)
    )


@pytest.fixture(scope="module")
def unigram() -> Tokenizer:
    return train(replace(CONFIG, symbols=["<2de>", "<IS MAN>", 'a,"b"'])).source


@pytest.fixture(scope="module")
def bpe() -> Tokenizer:
    return train(replace(CONFIG, type=SubwordType.bpe, symbols=["<2de>"])).source


@pytest.fixture(scope="module")
def without_bytes() -> Tokenizer:
    return train(replace(CONFIG, vocab_size=150, byte_fallback=False)).source


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer._processor.id_to_piece(int(i)) for i in tokenizer.encode([text])[0]]


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def digest(rows: list[np.ndarray]) -> str:
    return hashlib.sha256(b"|".join(row.tobytes() for row in rows)).hexdigest()


def test_ids_are_int32_and_equal_sentencepieces_own_on_one_thread(unigram, bpe):
    for tokenizer in (unigram, bpe):
        rows = tokenizer.encode(SOURCE)
        assert rows[0].dtype == np.int32 and rows[0].flags.writeable
        assert THREADS > 1
        assert same(rows, [np.array(tokenizer._processor.encode(line, num_threads=1)) for line in SOURCE])
        assert not {PAD, UNK, BOS, EOS} & {int(i) for row in rows for i in row}
    assert [len(row) for row in unigram.encode(["", " "])] == [0, 0]


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


@pytest.mark.parametrize("text", ["ab </s> cd", "<pad> <unk> <s>", "x<unk></s>", "<0x41>"])
def test_text_cannot_spell_special_ids(unigram, text):
    ids = unigram.encode([text])[0]
    assert not {PAD, UNK, BOS, EOS} & set(ids.tolist())
    assert unigram.decode(ids) == text


def test_symbols_stay_one_piece(unigram):
    for symbol, piece in (("<2de>", "<2de>"), ("<IS MAN>", "<IS▁MAN>"), ('a,"b"', 'a,"b"')):
        assert pieces(unigram, f"ab{symbol} cd").count(piece) == 1
        assert unigram.decode(unigram.encode([f"ab{symbol} cd"])[0]) == f"ab{symbol} cd"
        assert all(piece in _names(unigram, row) for row in unigram.sample([f"ab{symbol} cd"] * 20, 0.1, 1))


def _names(tokenizer: Tokenizer, ids: np.ndarray) -> list[str]:
    return [tokenizer._processor.id_to_piece(int(i)) for i in ids]


@pytest.mark.parametrize(
    ("symbols", "words"),
    [([""], "blank"), (["</s>"], "</s> is reserved"), (["x1", "x1"], "x1 is listed twice")],
)
def test_impossible_symbols_are_refused(symbols, words):
    with pytest.raises(UserError, match=words):
        train(replace(CONFIG, symbols=symbols))


def test_unseen_character_survives_as_bytes_or_shows_as_unknown(unigram, without_bytes):
    text = "snow☃man ☃ ab"
    assert unigram.decode(unigram.encode([text])[0]) == text
    assert without_bytes.decode(without_bytes.encode([text])[0]) == "snow⁇man ⁇ ab"
    assert unknown_share(without_bytes, ["☃"]) == 0.5  # the word's own blank is the other piece
    assert unknown_share(unigram, [text]) == 0
    assert round_trip(without_bytes, ["ab cd", "ab ☃", "cd", "☃"]) == 0.5


def test_separators_are_blanks_and_never_come_back(unigram):
    for breaking in "\x00\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\t\xa0":
        assert unigram.decode(unigram.encode([f"ab{breaking}cd"])[0]) == "ab cd", hex(ord(breaking))
    newline = unigram._processor.piece_to_id("<0x0A>")
    assert len(unigram.decode([*unigram.encode(["ab"])[0], newline]).splitlines()) == 1


def test_decode_drops_specials_and_refuses_foreign_ids(unigram):
    ids = unigram.encode(["ab cd"])[0].tolist()
    assert unigram.decode([BOS, *ids, EOS, PAD, PAD]) == "ab cd"
    for wrong in (unigram.size, -1):
        with pytest.raises(ValueError, match=f"{wrong} is outside"):
            unigram.decode([wrong])


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_sampling_repeats_keeps_the_text_and_leaves_encode_alone(kind, request):
    tokenizer = request.getfixturevalue(kind)
    lines = [*SOURCE[:100], "", "ab ☃☃ <2de> cd"]
    before = tokenizer.encode(lines)
    drawn = tokenizer.sample(lines, 0.2, 7)
    assert same(drawn, tokenizer.sample(lines, 0.2, 7))
    assert not same(drawn, tokenizer.sample(lines, 0.2, 8))
    assert not same(drawn, before)
    assert same(before, tokenizer.encode(lines))
    assert [tokenizer.decode(row) for row in drawn] == [tokenizer.normalize(line) for line in lines]
    with pytest.raises(ValueError, match="alpha=0"):
        tokenizer.sample(lines, 0, 7)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_sampling_repeats_in_another_process(kind, request, tmp_path):
    tokenizer = request.getfixturevalue(kind)
    tokenizer.save(tmp_path, "")
    program = (
        "import sys, pathlib, hashlib; from mt.data.tokenizer import load_model;"
        "rows = load_model(pathlib.Path(sys.argv[1])).sample(sys.argv[2:], 0.2, 7);"
        "print(hashlib.sha256(b'|'.join(r.tobytes() for r in rows)).hexdigest())"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "tokenizer.model"), *SOURCE[:20]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == digest(tokenizer.sample(SOURCE[:20], 0.2, 7))


@pytest.mark.parametrize(("kind", "alpha"), [("unigram", 0.2), ("unigram", 0.9), ("bpe", 0.1), ("bpe", 0.5)])
def test_sampling_has_sentencepieces_distribution(kind, alpha, request):
    tokenizer = request.getfixturevalue(kind)
    counts = {"ours": np.zeros(tokenizer.size), "theirs": np.zeros(tokenizer.size)}
    for row in tokenizer.sample(SOURCE * 4, alpha, 3):
        counts["ours"] += np.bincount(row, minlength=tokenizer.size)
    theirs = tokenizer._processor.encode(
        SOURCE * 4, enable_sampling=True, nbest_size=-1, alpha=alpha, out_type=int, num_threads=1
    )
    for row in theirs:
        counts["theirs"] += np.bincount(row, minlength=tokenizer.size)
    assert counts["ours"].sum() == pytest.approx(counts["theirs"].sum(), rel=0.02)
    assert np.abs(counts["ours"] - counts["theirs"]).sum() < 0.08 * counts["theirs"].sum()


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
    assert f"at least {least}:" in str(error.value) and "\n" not in str(error.value)
    assert train(replace(config, vocab_size=least)).source.size == least
    assert capfd.readouterr() == ("", "")


def test_at_most_max_sentences_are_drawn_from_the_whole_stream_by_seed():
    from mt.data.tokenizer_training import _sample_lines

    log: list[str] = []
    lines = ["", *map(str, range(1000))]
    drawn = _sample_lines(iter(lines), "source", 50, 1, log.append)
    assert log == ["tokenizer: sampled 50 of 1000 source lines"]
    assert len(set(drawn)) == 50 and drawn == sorted(drawn, key=int)
    assert drawn == _sample_lines(iter(lines), "source", 50, 1, log.append)
    assert drawn != _sample_lines(iter(lines), "source", 50, 2, log.append)
    hits = sum(int(line) >= 500 for s in range(100) for line in _sample_lines(lines, "", 50, s, log.append))
    assert hits == pytest.approx(2500, abs=150)  # four standard deviations


def test_a_sample_has_a_limit_of_characters_too_and_stays_a_fair_one(monkeypatch):
    from mt.data import tokenizer_training

    monkeypatch.setattr(tokenizer_training, "MOST_CHARACTERS", 300)
    lines = [f"{number:03}" for number in range(1000)]
    draws = [tokenizer_training._sample_lines(iter(lines), "", 10**6, seed, lambda line: None) for seed in range(200)]
    assert all(len(drawn) == 100 and drawn == sorted(set(drawn)) for drawn in draws)
    late = sum(int(line) >= 500 for drawn in draws for line in drawn)
    assert 9500 < late < 10500  # 10,000 expected, standard deviation about 67


def test_long_lines_are_learned_from_and_no_text_is_an_error():
    only = ["zq " * 4000]  # 12,000 bytes, where SentencePiece drops lines above 4,192 unless told
    assert train(replace(CONFIG, vocab_size=300), source=only, target=only).source.size > 260
    with pytest.raises(UserError, match="target side has no training text"):
        train(CONFIG, target=["", "  "])


def test_existing_model_with_our_ids_is_used_and_others_are_refused(tmp_path, unigram):
    import sentencepiece

    def make(name: str, **ids: int) -> str:
        path = tmp_path / f"my runs=ü {name}.model"
        with path.open("wb") as file:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(SOURCE), model_writer=file, vocab_size=120, minloglevel=2, **ids
            )
        return str(path)

    good = make("good", pad_id=0, unk_id=1, bos_id=2, eos_id=3)
    made = train(replace(CONFIG, model=good))
    assert made.joint and made.source is made.target and made.source.size == 120
    # its own unknown has blanks around it
    assert made.source.decode(made.source.encode(["ab☃ ☃ cd"])[0]) == "ab⁇ ⁇ cd"
    with pytest.raises(UserError, match=r"has no <pad>: train it with spm_train --pad_id=0"):
        train(replace(CONFIG, model=make("default")))
    with pytest.raises(UserError, match=r"<pad>=3, <unk>=0.*spm_train --pad_id=0"):
        train(replace(CONFIG, model=make("other", pad_id=3, unk_id=0, bos_id=1, eos_id=2)))
    with pytest.raises(UserError, match=r"needs tokenizer\.kind=sentencepiece"):
        train(replace(WORDS, model=good))


def test_missing_and_foreign_models_are_refused(tmp_path, capfd):
    for content in (None, b"", b"foreign"):
        path = tmp_path / "x.model"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(UserError, match=r"x\.model"):
            load_model(path)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, joint=False), WORDS, replace(WORDS, joint=False)])
def test_save_and_load_give_the_same_ids(config, tmp_path, monkeypatch):
    folder = tmp_path / "my runs=ü"
    folder.mkdir()
    made = train(config)
    made.save(folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torchtext.vocab", None)  # not needed to load
    loaded = Tokenizers.load(folder)
    assert (loaded.joint, loaded.source_language, loaded.target_language) == (config.joint, "en", "de")
    assert type(loaded.source) is type(made.source) and loaded.source.size == made.source.size
    assert same(loaded.source.encode(SOURCE), made.source.encode(SOURCE))
    assert same(loaded.target.encode(TARGET), made.target.encode(TARGET))
    for file in sorted(folder.iterdir()):
        content = file.read_bytes()
        file.write_bytes(b"foreign")
        with pytest.raises(UserError, match=file.name):
            Tokenizers.load(folder)
        file.unlink()
        with pytest.raises(UserError, match=f"cannot read .*{file.name}"):
            Tokenizers.load(folder)
        file.write_bytes(content)


def test_word_vocabulary_by_hand():
    config = replace(WORDS, joint=False, vocab_size=7)
    source = ["Don't stop, don't!", "stop it , it <unk> it"]
    made = train(config, source=source, target=["Ja ja ja"])
    # by frequency, then by code point: it 4; 't, the comma and stop 2 each, with room for two of them
    assert made.source.words == ["<pad>", "<unk>", "<s>", "</s>", "it", "'t", ","]
    assert made.target.words == ["<pad>", "<unk>", "<s>", "</s>", "ja"]
    assert made.source.encode(["it <unk> , \u2028it"])[0].tolist() == [4, UNK, UNK, UNK, 6, 4]
    assert made.source.decode([BOS, 4, 6, UNK, EOS]) == "it, ⁇"
    joint = train(replace(config, joint=True), source=["x y"], target=["x z", "z z"])
    assert joint.source.words == joint.target.words == ["<pad>", "<unk>", "<s>", "</s>", "z", "x"]
    assert same(joint.source.encode(["x z"]), joint.target.encode(["x z"]))


def test_words_are_moses_without_escapes_and_come_back():
    lines = ["A \"big\" dog & cat's [toy], isn't it?", "5,300 p.m. <b> | x;", "A </s> B"]
    made = train(replace(WORDS, min_frequency=1), source=lines, target=lines).source
    assert made.split("isn't [x] & y.") == ["isn", "'t", "[", "x", "]", "&", "y", "."]
    assert not {PAD, UNK, BOS, EOS} & {int(i) for row in made.encode(lines) for i in row}
    assert made.decode(made.encode(["A big dog, isn't it?"])[0]) == "A big dog, isn't it?"
    assert made.encode([""])[0].dtype == np.int32 and made.decode([]) == ""
    with pytest.raises(ValueError, match="no subwords"):
        made.sample(lines, 0.1, 1)
    with pytest.raises(ValueError, match="outside"):
        made.decode([made.size])


def test_czech_apostrophe_before_a_dash_is_detokenized():
    from mt.data.words import WordTokenizer

    czech = WordTokenizer(["<pad>", "<unk>", "<s>", "</s>", "a'", "-", "li", "x"], "cs")
    assert czech.decode([7, 4, 5, 6]) == "x a' - li"


def test_without_torchtext_the_word_tokenizer_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchtext.vocab", None)
    with pytest.raises(UserError, match=r"pip install torchtext==0\.6\.0") as error:
        train(WORDS)
    assert "\n" not in str(error.value)
    assert train(CONFIG).source.size == 400


def test_words_all_too_rare_are_an_error():
    with pytest.raises(UserError, match="min_frequency"):
        train(WORDS, source=["a b"], target=["c d"])


@pytest.mark.skipif("MT_DATA" not in os.environ, reason="MT_DATA with multi30k is not set")
def test_real_captions_come_back():
    import gzip

    folder = Path(os.environ["MT_DATA"]) / "multi30k"
    source, target = (
        gzip.decompress((folder / f"val.{side}.gz").read_bytes()).decode().split("\n")[:-1] for side in ("en", "de")
    )
    made = train(replace(CONFIG, vocab_size=2000), source=source, target=target)
    assert round_trip(made.source, source) == 1 and round_trip(made.target, target) == 1
    words = train(replace(WORDS, vocab_size=9000, min_frequency=1), source=source, target=target)
    assert round_trip(words.source, source) > 0.99 and round_trip(words.target, target) > 0.97
