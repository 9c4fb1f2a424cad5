"""Train translation models. From Python: `mt.Translator.load("outputs/multi30k-en-de").translate(["A dog runs."])`."""

from typing import Any

__all__ = ["Translator"]


def __getattr__(name: str) -> Any:
    # Imported lazily, because importing torch takes seconds and `mt --help` does not need it
    if name == "Translator":
        from mt.decoding.translator import Translator

        return Translator
    raise AttributeError(f"module 'mt' has no attribute {name!r}")
