"""`mt COMMAND [KEY=VALUE ...]`: from a command line to an exit code.

Exit codes: 0 done, 2 a mistake in the command or its input, 3 data that is neither here nor available, 1 the system
refused or a fault of mt, 128 + n ended by signal n (130 is Ctrl-C), 141 nobody reads the output.
"""

import atexit
import gc
import io
import os
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from mt.commands import COMMANDS
from mt.config.overrides import Command, allowed, default_text, nearest, options
from mt.errors import UserError
from mt.runtime.signals import end_with_parent, launcher_has_ended


def main(argv: list[str] | None = None) -> int:
    """Run one command line and return its exit code; a user's mistake is one line on stderr."""
    if argv is None:  # as a program: searching torch's modules for cycles takes half a second of each start
        gc.set_threshold(100_000)
        atexit.register(gc.freeze)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # whatever the locale
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    one_of_several = "RANK" in os.environ
    try:
        if one_of_several:
            end_with_parent()
            if launcher_has_ended():
                raise UserError("the process that started this one has ended")
        code = _parse(sys.argv[1:] if argv is None else argv)()
        sys.stdout.flush()
        if one_of_several and "mt.runtime.distributed" in sys.modules:
            sys.modules["mt.runtime.distributed"].leave()
        return code
    except BaseException as error:
        return _end_one_of_several(error) if one_of_several else _explain(error)


def _parse(arguments: list[str]) -> Callable[[], int]:
    """What a command line asks for, as a function that does it. Raises UserError for a mistake in its form."""
    if not arguments or arguments[0] in ("-h", "--help"):
        return partial(_print, overview() + "\n")
    if arguments[0] in ("-V", "--version"):
        return partial(_print, _version() + "\n")
    name, *rest = arguments
    if name not in COMMANDS:
        raise UserError(f"mt has no command {name!r}: use {', '.join(COMMANDS)}{nearest(name, COMMANDS)}")
    command = COMMANDS[name]
    overrides, flags = _flags(command, rest)
    if "--help" in flags:
        return partial(_print, help_text(command) + "\n")
    if "--cfg" in flags:
        return partial(_print_config, command, overrides)
    if "--multirun" in flags and command.sweep:
        return partial(command.sweep, overrides)
    return partial(command.run, overrides)


def _flags(command: Command, arguments: list[str]) -> tuple[list[str], set[str]]:
    """Overrides and flags, in any order."""
    long = {"-h": "--help", "-m": "--multirun", "-c": "--cfg"}
    overrides: list[str] = []
    flags: set[str] = set()
    remaining = iter(arguments)
    for argument in remaining:
        flag, _, value = argument.partition("=")
        flag = long.get(flag, flag)
        if not argument.startswith("-"):
            overrides.append(argument)
            continue
        if flag not in long.values():
            raise UserError(f"mt {command.name} has no option {argument}: use --help, --cfg job, -m, or key=value")
        if flag == "--cfg" and (value or next(remaining, "")) != "job":
            raise UserError("--cfg shows one thing: write --cfg job")
        if flag == "--multirun" and not command.sweep:
            raise UserError(f"-m is for mt train: mt {command.name} runs once")
        flags.add(flag)
    if {"--cfg", "--multirun"} <= flags:
        raise UserError("--cfg job shows one configuration: leave out -m")
    return overrides, flags


def overview() -> str:
    """What `mt --help` shows."""
    return "\n".join(
        [
            "mt trains encoder-decoder translation models from two files of text.",
            "",
            "usage: mt COMMAND [KEY=VALUE ...]",
            "",
            "commands:",
            *(f"  {command.name:<11}{command.help}" for command in COMMANDS.values()),
            "",
            "first steps:",
            *_examples((COMMANDS["train"].examples[0], COMMANDS["translate"].examples[0])),
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


def _print(text: str) -> int:
    print(text, end="")
    return 0


def _print_config(command: Command, overrides: list[str]) -> int:
    from mt.config.compose import compose
    from mt.config.stored import to_yaml

    return _print(to_yaml(compose(command, overrides)))


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"mt {version('mt')}"
    except PackageNotFoundError:
        return "mt, not installed: run from its folder"


def _explain(error: BaseException) -> int:
    """Print in one line what the user can correct, and return the exit code; raise everything else again."""
    if isinstance(error, UserError):
        return _complain(str(error), error.exit_code)
    if isinstance(error, KeyboardInterrupt):
        return _complain("interrupted", 130)
    if isinstance(error, BrokenPipeError):
        # Otherwise the interpreter complains at exit, when it flushes what nobody reads
        with suppress(OSError, ValueError):
            stdout = sys.stdout.fileno()
            os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
        return 141
    if isinstance(error, OSError):
        where = " -> ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
        return _complain(f"{where}: {error.strerror or error}".removeprefix(": "), 1)
    raise error


def _complain(text: str, code: int) -> int:
    print("error: " + text.replace("\n", " "), file=sys.stderr)
    return code


def _end_one_of_several(error: BaseException) -> int:
    """Leave one of several processes, which end together, so that only one of them complains.

    The process that failed first speaks first. The launcher sees it end and ends the others, which wait here for that.
    """
    rank = os.environ["RANK"]
    if isinstance(error, KeyboardInterrupt) and rank != "0":
        os._exit(130)  # as all of them do
    lost = "mt.runtime.distributed" in sys.modules and sys.modules["mt.runtime.distributed"].lost_contact(error)
    time.sleep(10 if lost else 0 if rank == "0" else 2)
    if lost:
        error = UserError(f"process {rank} lost contact with the others")
    try:
        code = _explain(error)
    except BaseException:
        print(f"process {rank}:", file=sys.stderr)
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)  # at once, because a normal exit would wait for the others
