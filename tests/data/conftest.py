"""A corpus of the toy language."""

import pytest
from tests_support import toy_pairs, write_pairs

from mt.config.schema import Corpus, DataConfig


@pytest.fixture
def config(tmp_path):
    pairs = toy_pairs(120)
    return DataConfig(
        corpus=Corpus.files,
        prepared_dir=str(tmp_path / "prepared"),
        train=write_pairs(tmp_path, "train", pairs[:100]),
        dev=write_pairs(tmp_path, "dev", pairs[100:]),
    )
