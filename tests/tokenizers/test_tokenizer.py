"""All tokenizers: decoding, saving and loading, and the share of lines that survive a round trip."""

import gzip
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers_support import CONFIG, SOURCE, TARGET, WORDS, same, train

from mt.errors import UserError
from mt.tokenizers.pair import Tokenizers
from mt.tokenizers.special_ids import BOS, EOS, PAD
from mt.tokenizers.tokenizer import round_trip


def test_decode_drops_specials_and_refuses_foreign_ids(unigram):
    ids = unigram.encode(["ab cd"])[0].tolist()
    assert unigram.decode([BOS, *ids, EOS, PAD, PAD]) == "ab cd"
    for wrong in (unigram.size, -1):
        with pytest.raises(ValueError, match=f"{wrong} is outside"):
            unigram.decode([wrong])


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, joint=False), WORDS, replace(WORDS, joint=False)])
def test_save_and_load_give_the_same_ids(config, tmp_path, monkeypatch):
    folder = tmp_path / "my runs=ü"
    folder.mkdir()
    made = train(config)
    made.save(folder)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torchtext.vocab", None)  # loading must not need it
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


@pytest.mark.skipif("MT_DATA" not in os.environ, reason="MT_DATA with multi30k is not set")
def test_real_captions_come_back():
    folder = Path(os.environ["MT_DATA"]) / "multi30k"
    source, target = (
        gzip.decompress((folder / f"val.{side}.gz").read_bytes()).decode().split("\n")[:-1] for side in ("en", "de")
    )
    made = train(replace(CONFIG, vocab_size=2000), source=source, target=target)
    assert round_trip(made.source, source) == 1 and round_trip(made.target, target) == 1
    words = train(replace(WORDS, vocab_size=9000, min_frequency=1), source=source, target=target)
    assert round_trip(words.source, source) > 0.99 and round_trip(words.target, target) > 0.97
