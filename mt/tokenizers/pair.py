"""The tokenizers of both languages, and their files."""

import json
from dataclasses import dataclass
from pathlib import Path

from mt.config.schema import TokenizerKind
from mt.errors import UserError, explain_os_errors
from mt.tokenizers.sentencepiece import SentencePieceTokenizer
from mt.tokenizers.tokenizer import Tokenizer
from mt.tokenizers.words import WordTokenizer

META = "tokenizer.json"
SIDES = ("source", "target")


@dataclass(frozen=True)
class Tokenizers:
    """Both sides' tokenizers. `joint`: they share one vocabulary (with SentencePiece, they are one object)."""

    source: Tokenizer
    target: Tokenizer
    joint: bool
    source_language: str = ""
    target_language: str = ""

    def save(self, folder: Path) -> None:
        """Write all files of both tokenizers into an existing folder."""
        languages = {"source": self.source_language, "target": self.target_language}
        meta = {"kind": self.source.kind.value, "joint": self.joint, **languages}
        for side in ("",) if self.joint else SIDES:
            getattr(self, side or "source").save(folder, side)
        (folder / META).write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "Tokenizers":
        """Read the files that `save` wrote. Raises UserError if one is missing or invalid."""
        path = folder / META
        with explain_os_errors(f"cannot read {path}"):
            content = path.read_bytes()
        try:
            meta = json.loads(content)
            kind, joint = TokenizerKind(meta["kind"]), bool(meta["joint"])
            languages = str(meta["source"]), str(meta["target"])
        except (KeyError, TypeError, ValueError):
            raise UserError(f"{path} is not a tokenizer description of mt") from None
        sides = ("", "") if joint else SIDES
        if kind is TokenizerKind.word:
            words = [WordTokenizer.load(folder, *each) for each in zip(sides, languages, strict=True)]
            return cls(words[0], words[1], joint, *languages)
        source = SentencePieceTokenizer.load(folder, sides[0])
        return cls(source, source if joint else SentencePieceTokenizer.load(folder, sides[1]), joint, *languages)
