"""SentencePiece tokenizers, compared with SentencePiece itself."""

from dataclasses import replace

import numpy as np
import pytest
from tokenizers_support import CONFIG, SOURCE, WORDS, same, train

from mt.errors import UserError
from mt.tokenizers.sentencepiece import THREADS, load_model
from mt.tokenizers.special_ids import BOS, EOS, PAD, UNK
from mt.tokenizers.tokenizer import Tokenizer, round_trip, unknown_share


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer._processor.id_to_piece(int(i)) for i in tokenizer.encode([text])[0]]


def test_ids_are_int32_and_equal_sentencepieces_own_on_one_thread(unigram, bpe):
    for tokenizer in (unigram, bpe):
        rows = tokenizer.encode(SOURCE)
        assert rows[0].dtype == np.int32 and rows[0].flags.writeable
        assert THREADS > 1
        assert same(rows, [np.array(tokenizer._processor.encode(line, num_threads=1)) for line in SOURCE])
        assert not {PAD, UNK, BOS, EOS} & {int(i) for row in rows for i in row}
    assert [len(row) for row in unigram.encode(["", " "])] == [0, 0]


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


def test_unseen_character_survives_as_bytes_or_shows_as_unknown(unigram, without_bytes):
    text = "snow☃man ☃ ab"
    assert unigram.decode(unigram.encode([text])[0]) == text
    assert without_bytes.decode(without_bytes.encode([text])[0]) == "snow⁇man ⁇ ab"
    assert unknown_share(without_bytes, ["☃"]) == 0.5  # the blank before it is the other piece
    assert unknown_share(unigram, [text]) == 0
    assert round_trip(without_bytes, ["ab cd", "ab ☃", "cd", "☃"]) == 0.5


def test_separators_are_blanks_and_never_come_back(unigram):
    for breaking in "\x00\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\t\xa0":
        assert unigram.decode(unigram.encode([f"ab{breaking}cd"])[0]) == "ab cd", hex(ord(breaking))
    newline = unigram._processor.piece_to_id("<0x0A>")
    assert len(unigram.decode([*unigram.encode(["ab"])[0], newline]).splitlines()) == 1


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
    # by default, SentencePiece puts blanks around ⁇
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
