"""Helpers for tests of prepared corpora."""

from mt.config.schema import TokenizerConfig
from mt.corpora.locate import locate
from mt.data.preparation import prepare

TOKENIZER = TokenizerConfig(vocab_size=330)


def run(config, tokenizer=TOKENIZER, seed=1):
    """The prepared corpus of a configuration, and the lines that were reported."""
    lines = []
    prepared = prepare(locate(config, lines.append), config, tokenizer, seed, lines.append)
    return prepared, lines


def texts(prepared, side):
    """The training sentences of a side, decoded from their ids."""
    ids = getattr(prepared, side)
    return [getattr(prepared.tokenizers, side).decode(ids[i]) for i in range(len(ids))]
