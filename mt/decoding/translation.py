"""The result of translating a line, with either engine."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Translation:
    """One hypothesis of a line."""

    text: str
    score: float  # log-probability / length^length_penalty
    log_probability: float
    tokens: tuple[int, ...]  # with EOS
    at_limit: bool  # cut by the length limit
