"""The table of corpora. To add a corpus, add it to mt.config.schema.Corpus and register its function here."""

from dataclasses import replace
from pathlib import Path

from mt.config.schema import Corpus, DataConfig
from mt.corpora import captions, files, multi30k, wmt14
from mt.corpora.formats import Report, Sources
from mt.errors import UserError

CORPORA = {
    Corpus.multi30k: multi30k.locate,
    Corpus.wmt14: wmt14.locate,
    Corpus.files: files.locate,
    Corpus.captions: captions.locate,
}


def locate(config: DataConfig, report: Report, training: bool = True) -> Sources:
    """The files of the configured corpus; missing ones are downloaded or unpacked, and `report` gets a line for each.

    If not `training`, training files are not needed, and data.raw_dir, which may be from another machine, need not
    exist. Raises UserError for a wrong direction or invalid files, DataUnavailable for unreachable ones.
    """
    if config.corpus is not Corpus.files:
        if not training and config.raw_dir and not Path(config.raw_dir).exists():
            config = replace(config, raw_dir=None)
        for key in ("train", "dev", "test"):
            if getattr(config, key):
                raise UserError(f"data.{key} is for data=files only: data={config.corpus.value} has its own files")
    return CORPORA[config.corpus](config, report, training)
