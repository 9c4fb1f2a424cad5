"""The result of translating a line, and the interface of both engines. Imports nothing that takes time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Translation:
    """One hypothesis of a line."""

    text: str
    score: float  # log-probability / length^length_penalty
    log_probability: float
    tokens: tuple[int, ...]  # with EOS
    at_limit: bool  # cut by the length limit


class Engine(Protocol):
    """`Translator` or `ExportedTranslator`."""

    def translate_nbest(self, lines: Sequence[str]) -> list[list[Translation]]:
        """Up to decode.nbest different hypotheses of each line, best first; at least one."""

    def too_long(self, lines: Sequence[str]) -> int:
        """The number of lines that are longer than the model's positions, so that their ends are not translated."""

    def describe(self) -> str:
        """The engine and the hardware it runs on."""
