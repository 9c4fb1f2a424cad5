"""`mt prepare`: fetch, clean and tokenize the text of a run, and print the folder of the prepared corpus."""

from dataclasses import dataclass, field

from mt.config.compose import compose
from mt.config.overrides import Command
from mt.config.schema import DataConfig, TokenizerConfig, key
from mt.runtime.process import say


@dataclass(frozen=True)
class PrepareConfig:
    seed: int = key(1, "seed for sampling the lines on which the tokenizer is trained, if the corpus is large", low=0)
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)


def run(overrides: list[str]) -> int:
    """Prepare the corpus, and fetch the test sets, so that a machine without a network can train and score."""
    config: PrepareConfig = compose(COMMAND, overrides)
    from mt.corpora.locate import locate
    from mt.data.preparation import prepare

    sources = locate(config.data, say)
    corpus = prepare(sources, config.data, config.tokenizer, config.seed, say)
    for find in sources.find_tests.values():
        find()
    print(corpus.folder)
    return 0


COMMAND = Command(
    name="prepare",
    help="download, clean and tokenize the text that mt train uses with the same settings",
    config=PrepareConfig,
    run=run,
    groups=("experiment", "data", "tokenizer"),
    examples=(
        ("the corpus of the default experiment", "mt prepare"),
        ("your own text", "mt prepare data=files 'data.train=[train.en,train.de]'"),
    ),
)
