"""The table of commands, and their help."""

import textwrap
from dataclasses import dataclass

from mt.config import Job
from mt.overrides import GROUPS, JOBS, allowed, default_text, keys, options


@dataclass(frozen=True)
class Command:
    """One command: what it is for, the function that does it, and examples."""

    name: str
    help: str
    entry: str  # module:function, imported when it runs because torch takes seconds
    examples: tuple[tuple[str, str], ...]  # (what for, command line)

    @property
    def job(self) -> type[Job]:
        return JOBS[self.name]


COMMANDS = {
    command.name: command
    for command in (
        Command(
            "train",
            "train a model, then score its test sets",
            "mt.training.loop:train",
            (
                ("the default recipe: Multi30k, English to German", "mt train"),
                ("another direction", "mt train data.source=de data.target=en"),
                ("another model and schedule", "mt train model=small optim.warmup_steps=1000"),
                ("your own text, a line a sentence", "mt train data=files 'data.train=[train.en,train.de]'"),
                ("two runs, one after the other", "mt train -m optim.warmup_steps=1000,2000"),
                ("show the configuration and stop", "mt train --cfg job"),
            ),
        ),
        Command(
            "prepare",
            "fetch, clean and tokenize the text of a training with the same data and tokenizer options",
            "mt.data.preparation:prepare_command",
            (
                ("the text of the default recipe", "mt prepare"),
                ("your own text", "mt prepare data=files 'data.train=[train.en,train.de]'"),
            ),
        ),
        Command(
            "evaluate",
            "score a run or a checkpoint: BLEU, chrF2, TER",
            "mt.evaluation.evaluate:evaluate_command",
            (
                ("the run's own test sets", "mt evaluate checkpoint=outputs/multi30k-en-de"),
                ("other text", "mt evaluate checkpoint=outputs/multi30k-en-de input=x.en reference=x.de"),
            ),
        ),
        Command(
            "translate",
            "translate text, a line for a line",
            "mt.decoding.command:translate_command",
            (
                ("a file", "mt translate checkpoint=outputs/multi30k-en-de < in.en > out.de"),
                ("greedy search", "mt translate checkpoint=outputs/multi30k-en-de decode=greedy < in.en"),
            ),
        ),
        Command(
            "average",
            "average checkpoints of a run into one more checkpoint",
            "mt.checkpoint_store:average_command",
            (("the last five", "mt average checkpoint=outputs/multi30k-en-de count=5"),),
        ),
        Command(
            "export",
            "write a checkpoint for CTranslate2, checked against mt's own engine",
            "mt.evaluation.export:export_command",
            (
                ("faster mt translate on a CPU", "mt export checkpoint=outputs/multi30k-en-de"),
                ("small", "mt export checkpoint=outputs/multi30k-en-de type=int8"),
            ),
        ),
    )
}


def overview() -> str:
    """What `mt --help` shows."""
    commands = [f"  {command.name:<11}{command.help}" for command in COMMANDS.values()]
    return "\n".join(
        [
            "mt trains encoder-decoder translation models from two files of text.",
            "",
            "usage: mt COMMAND [KEY=VALUE ...]",
            "",
            "commands:",
            *commands,
            "",
            "first steps:",
            *_examples((*COMMANDS["train"].examples[:1], COMMANDS["translate"].examples[0])),
            "",
            "`mt COMMAND --help` shows examples and every key; `mt --version` the version.",
        ]
    )


def help_text(command: Command) -> str:
    """What `mt COMMAND --help` shows: examples, groups and every key."""
    multirun = " [-m]" if command.name == "train" else ""
    lines = [f"mt {command.name}: {command.help}", ""]
    lines += [f"usage: mt {command.name} [KEY=VALUE ...] [--cfg job]{multirun}", ""]
    lines += ["examples:", *_examples(command.examples), ""]
    if GROUPS[command.name]:
        lines += ["groups, each a set of values under one name:"]
        for group in GROUPS[command.name]:
            lines += [f"  {group}=", *(f"    {name:<16}{text}" for name, text in options(group).items())]
        lines += [""]
    lines += ["keys, with default, meaning and what they may be:"]
    section = ""
    for name, item in keys(command.name).items():
        if name.partition(".")[0] != section and "." in name:
            section = name.partition(".")[0]
            lines += [""]
        lines += [f"  {name}={default_text(item)}"]
        lines += textwrap.wrap(
            f"{item.metadata['help']} ({allowed(item)})",
            96,
            initial_indent=" " * 6,
            subsequent_indent=" " * 6,
        )
    if "experiment" in GROUPS[command.name]:
        lines += ["", "A recipe (experiment=) changes some of the defaults: --cfg job shows what holds."]
    lines += [
        "",
        "Values with blanks, commas or brackets need quotes from the shell: 'data.train=[a b.en,a b.de]'.",
    ]
    return "\n".join(lines)


def _examples(examples: tuple[tuple[str, str], ...]) -> list[str]:
    return [line for purpose, example in examples for line in (f"  # {purpose}", f"  {example}")]
