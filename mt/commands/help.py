"""The text that `mt --help` and `mt COMMAND --help` show."""

import textwrap
from collections.abc import Iterable

from mt.config.overrides import Command, allowed, default_text, options


def overview(commands: dict[str, Command]) -> str:
    """What `mt --help` shows."""
    return "\n".join(
        [
            "mt trains encoder-decoder translation models from two files of text.",
            "",
            "usage: mt COMMAND [KEY=VALUE ...]",
            "",
            "commands:",
            *(f"  {command.name:<11}{command.help}" for command in commands.values()),
            "",
            "first steps:",
            *_examples((commands["train"].examples[0], commands["translate"].examples[0])),
            "",
            "`mt COMMAND --help` shows examples and every key; `mt --version` the version.",
        ]
    )


def help_text(command: Command) -> str:
    """What `mt COMMAND --help` shows: examples, groups and every key."""
    several = " [-m]" if command.sweep else ""
    lines = [f"mt {command.name}: {command.help}", ""]
    lines += [f"usage: mt {command.name} [KEY=VALUE ...] [--cfg job]{several}", ""]
    lines += ["examples:", *_examples(command.examples), ""]
    if command.groups:
        lines += ["groups, each a set of values under one name:"]
        for group in command.groups:
            lines += [f"  {group}=", *(f"    {name:<16}{text}" for name, text in options(group).items())]
        lines += [""]
    lines += ["keys, with their default, meaning and allowed values:"]
    section = ""
    for name, item in command.keys.items():
        if name.partition(".")[0] != section and "." in name:
            section = name.partition(".")[0]
            lines += [""]
        lines += [f"  {name}={default_text(item)}"]
        text = f"{item.metadata['help']} ({allowed(item)})"
        lines += textwrap.wrap(text, 96, initial_indent=" " * 6, subsequent_indent=" " * 6)
    if "experiment" in command.groups:
        lines += ["", "An experiment (experiment=) changes some of the defaults: --cfg job shows the result."]
    lines += [
        "",
        "Values with blanks, commas or brackets need quotes from the shell: 'data.train=[a b.en,a b.de]'.",
    ]
    return "\n".join(lines)


def _examples(examples: Iterable[tuple[str, str]]) -> list[str]:
    return [line for purpose, example in examples for line in (f"  # {purpose}", f"  {example}")]
