"""The common workload: Multi30k en-de in each tool's format, and the sizes of the models.

All tools get the same joint SentencePiece vocabulary, sentences and model, and about the same number of target tokens
per update. In Marian, each thread makes its own updates of a share of these tokens.
"""

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sentencepiece

SOURCE, TARGET = "en", "de"
TRAIN, DEV, TEST = "train", "val", "test_2016_flickr"
VOCABULARY = 8000
UPDATE_TOKENS = 4096
Numbers = dict[str, float]
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")


@dataclass(frozen=True)
class Size:
    """The size of a model."""

    layers: int  # of the encoder and of the decoder, each
    width: int
    inner: int
    heads: int
    dropout: float


SIZES = {
    "tiny": Size(4, 128, 256, 4, 0.3),
    "small": Size(4, 256, 1024, 4, 0.2),
    "base": Size(6, 512, 2048, 8, 0.1),
}


@dataclass(frozen=True)
class Workload:
    """A folder with plain text (train.en), text in pieces (train.pieces.en), the vocabulary, and mt's run."""

    folder: Path

    @property
    def model(self) -> Path:
        """The SentencePiece model."""
        return self.folder / "spm.model"

    def text(self, split: str, side: str) -> Path:
        return self.folder / f"{split}.{side}"

    def pieces(self, split: str, side: str) -> Path:
        return self.folder / f"{split}.pieces.{side}"


def make_workload(folder: Path, raw: Path) -> Workload:
    """Create the workload from the published files of Multi30k, unless it exists."""
    work = Workload(folder)
    if (folder / "vocab.joeynmt.txt").exists():
        return work
    folder.mkdir(parents=True, exist_ok=True)
    for split in (TRAIN, DEV, TEST):
        for side in (SOURCE, TARGET):
            with gzip.open(raw / f"{split}.{side}.gz", "rt", encoding="utf-8", newline="\n") as stream:
                lines = [" ".join(line.split()) for line in stream]
            work.text(split, side).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=[str(work.text(TRAIN, side)) for side in (SOURCE, TARGET)],
        model_prefix=str(folder / "spm"),
        vocab_size=VOCABULARY,
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        minloglevel=2,
    )
    units = sentencepiece.SentencePieceProcessor(model_file=str(work.model))
    for split in (TRAIN, DEV, TEST):
        for side in (SOURCE, TARGET):
            lines = work.text(split, side).read_text(encoding="utf-8").splitlines()
            cut = "".join(" ".join(pieces) + "\n" for pieces in units.encode(lines, out_type=str))
            work.pieces(split, side).write_text(cut, encoding="utf-8")
    names = [units.id_to_piece(number) for number in range(len(SPECIALS), units.get_piece_size())]
    with_counts = "".join(f"{name}\t1\n" for name in (*SPECIALS, *names))
    (folder / "vocab.eole.txt").write_text(with_counts, encoding="utf-8")
    (folder / "vocab.spm").write_bytes(work.model.read_bytes())  # Marian recognizes the format by this extension
    (folder / "vocab.joeynmt.txt").write_text("".join(name + "\n" for name in names), encoding="utf-8")
    return work


def rates(translations: Sequence[str], seconds: float, model: Path) -> Numbers:
    """Speed in sentences and in tokens of the common vocabulary, so that the tools' lengths are comparable."""
    units = sentencepiece.SentencePieceProcessor(model_file=str(model))
    tokens = sum(len(ids) + 1 for ids in units.encode(list(translations)))
    return {
        "seconds": seconds,
        "sentences_per_second": len(translations) / seconds,
        "target_tokens_per_second": tokens / seconds,
        "tokens_per_sentence": tokens / len(translations),
    }
