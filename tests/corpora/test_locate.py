"""The table of corpora, and the rules for all corpora except the user's own files."""

from pathlib import Path

import pytest
from corpora_support import quiet

from mt.config.schema import Corpus, DataConfig
from mt.corpora.locate import CORPORA, locate
from mt.errors import UserError


def test_every_corpus_of_the_configuration_is_in_the_table() -> None:
    assert set(CORPORA) == set(Corpus)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (DataConfig(train=["a.en", "a.de"]), "data.train is for data=files only"),
        (DataConfig(corpus=Corpus.captions, test={"t": ["a.en", "a.de"]}), "data.test is for data=files"),
    ],
)
def test_a_named_corpus_takes_no_files_of_the_user(here: Path, config: DataConfig, words: str) -> None:
    with pytest.raises(UserError, match=words):
        locate(config, quiet)
    assert not list(here.iterdir())


def test_a_run_that_moved_finds_its_sets_where_they_lie_by_default(here: Path) -> None:
    for split in ("train", "dev", "test"):
        for language in ("en", "de"):
            path = here / "data/raw/captions" / f"{split}.{language}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("a\n")
    gone = DataConfig(corpus=Corpus.captions, raw_dir=str(here / "elsewhere" / "captions"))
    found = locate(gone, quiet, training=False)
    assert found.dev[0].source_path == here / "data/raw/captions/dev.en"
    assert not (here / "elsewhere").exists()
