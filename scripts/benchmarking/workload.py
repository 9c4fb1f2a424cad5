"""The common work: Multi30k en-de as each tool wants it, and the two models that all of them have.

Everyone gets the same joint SentencePiece vocabulary, the same sentences, the same model and about as many target
tokens an update, but for Marian, whose threads each make updates of their share of it.
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
    """A model's sizes."""

    layers: int  # of the encoder, and of the decoder
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
    """A folder with plain text (train.en), text in pieces (train.pieces.en), the vocabulary, and a run of ours."""

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
    """Write what is not there yet, from the files that Multi30k publishes."""
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
    (folder / "vocab.spm").write_bytes(work.model.read_bytes())  # Marian goes by the ending
    (folder / "vocab.joeynmt.txt").write_text("".join(name + "\n" for name in names), encoding="utf-8")
    return work


def rates(translations: Sequence[str], seconds: float, model: Path) -> Numbers:
    """Speed in sentences and in pieces of the common vocabulary, so that lengths compare."""
    units = sentencepiece.SentencePieceProcessor(model_file=str(model))
    tokens = sum(len(ids) + 1 for ids in units.encode(list(translations)))
    return {
        "seconds": seconds,
        "sentences_per_second": len(translations) / seconds,
        "target_tokens_per_second": tokens / seconds,
        "tokens_per_sentence": tokens / len(translations),
    }
