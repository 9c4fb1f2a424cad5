"""What every corpus returns: its files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mt.config.schema import DataConfig
from mt.corpora.formats import Bitext
from mt.errors import UserError

Report = Callable[[str], None]


@dataclass(frozen=True)
class Sources:
    """The files of a corpus in one direction: splits as lists of parts, test sets by name.

    If there are no development files, a part of train is held out. Each test set of a named corpus is fetched only when
    `find_tests[name]` is called, because training works without it.
    """

    train: list[Bitext]
    dev: list[Bitext]
    find_tests: Mapping[str, Callable[[], list[Bitext]]]

    @property
    def tests(self) -> dict[str, list[Bitext]]:
        return {name: find() for name, find in self.find_tests.items()}

    @property
    def hold_out_dev(self) -> bool:
        return not self.dev


def check_direction(config: DataConfig, languages: tuple[str, ...]) -> None:
    """Raise UserError for a language that the corpus does not have."""
    for key, language in (("source", config.source), ("target", config.target)):
        if language not in languages:
            raise UserError(f"data.{key}={language}: the languages of {config.corpus.value} are {', '.join(languages)}")
