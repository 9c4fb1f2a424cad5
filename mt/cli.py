"""Runs `mt COMMAND [KEY=VALUE ...]` and returns an exit code.

Exit codes: 0 success, 1 system error or bug in mt, 2 error in the command or its input, 3 data not on this machine and
not downloadable, 128 + n ended by signal n (130 is Ctrl-C), 141 broken pipe on the output.
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
from mt.config.compose import compose
from mt.config.overrides import Command, allowed, default_text, nearest, options
from mt.config.stored import to_yaml
from mt.errors import UserError
from mt.reporting.environment import package_version
from mt.runtime.process import end_with_parent, launcher_has_ended


def main(argv: list[str] | None = None) -> int:
    """Run one command line and return its exit code. User errors are one line on stderr."""
    if argv is None:  # run as a program: garbage-collecting torch's modules slows each start by half a second
        gc.set_threshold(100_000)
        atexit.register(gc.freeze)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # in any locale
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
    """Return the function that runs a command line. Raises UserError if the command line is malformed."""
    if not arguments or arguments[0] in ("-h", "--help"):
        return partial(_print, overview)
    if arguments[0] in ("-V", "--version"):
        return partial(_print, lambda: f"mt {package_version('mt')}")
    name, *rest = arguments
    if name not in COMMANDS:
        raise UserError(f"mt has no command {name!r}: use {', '.join(COMMANDS)}{nearest(name, COMMANDS)}")
    command = COMMANDS[name]
    overrides, flags = _flags(command, rest)
    if "--help" in flags:
        return partial(_print, partial(help_text, command))
    if "--cfg" in flags:
        return partial(_print, lambda: to_yaml(compose(command, overrides)).rstrip("\n"))
    return partial(command.sweep if command.sweep and "--multirun" in flags else command.run, overrides)


def _flags(command: Command, arguments: list[str]) -> tuple[list[str], set[str]]:
    """Separate overrides from flags, which may come in any order."""
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
        if flag not in long.values() or (value and flag != "--cfg"):
            raise UserError(f"mt {command.name} has no option {argument}: use --help, --cfg job, -m, or key=value")
        if flag == "--cfg" and (value or next(remaining, "")) != "job":
            raise UserError("--cfg takes one value only: write --cfg job")
        if flag == "--multirun" and not command.sweep:
            raise UserError(f"-m works with mt train only, not with mt {command.name}")
        flags.add(flag)
    if {"--cfg", "--multirun"} <= flags:
        raise UserError("--cfg job shows one configuration: leave out -m")
    return overrides, flags


def overview() -> str:
    """The text of `mt --help`."""
    lines = ["mt trains encoder-decoder translation models.", "", "usage: mt COMMAND [KEY=VALUE ...]", ""]
    lines += ["commands:", *(f"  {command.name:<11}{command.help}" for command in COMMANDS.values()), ""]
    lines += ["first steps:", *_examples((COMMANDS["train"].examples[0], COMMANDS["translate"].examples[0])), ""]
    lines += ["`mt COMMAND --help` shows examples and every key; `mt --version` shows the version."]
    return "\n".join(lines)


def help_text(command: Command) -> str:
    """The text of `mt COMMAND --help`: examples, groups and every key."""
    lines = [f"mt {command.name}: {command.help}", ""]
    lines += [f"usage: mt {command.name} [KEY=VALUE ...] [--cfg job]{' [-m]' if command.sweep else ''}", ""]
    lines += ["examples:", *_examples(command.examples), ""]
    if command.groups:
        lines += ["groups (each option sets several keys at once):"]
        for group in command.groups:
            lines += [f"  {group}=", *(f"    {name:<16}{text}" for name, text in options(group).items())]
        lines += [""]
    lines += ["keys, with their defaults, meanings and allowed values:"]
    section = ""
    for name, item in command.keys.items():
        if name.partition(".")[0] != section and "." in name:
            section = name.partition(".")[0]
            lines += [""]
        lines += [f"  {name}={default_text(item)}"]
        text = f"{item.metadata['help']} ({allowed(item)})"
        lines += textwrap.wrap(text, 96, initial_indent=" " * 6, subsequent_indent=" " * 6)
    if "experiment" in command.groups:
        lines += ["", "An experiment (experiment=) and the groups change some defaults: --cfg job shows the result."]
    lines += ["", "In the shell, quote values with spaces, brackets or parentheses: 'data.train=[a b.en,a b.de]'."]
    return "\n".join(lines)


def _examples(examples: Iterable[tuple[str, str]]) -> list[str]:
    return [line for purpose, example in examples for line in (f"  # {purpose}", f"  {example}")]


def _print(text: Callable[[], str]) -> int:
    print(text())
    return 0


def _explain(error: BaseException) -> int:
    """Print a user-correctable error as one line and return its exit code; re-raise any other error."""
    if isinstance(error, BrokenPipeError):
        # Otherwise the interpreter reports a broken pipe when it flushes stdout at exit
        with suppress(OSError, ValueError):
            stdout = sys.stdout.fileno()
            os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
        return 141
    if isinstance(error, UserError):
        text, code = str(error), error.exit_code
    elif isinstance(error, KeyboardInterrupt):
        text, code = "interrupted", 130
    elif isinstance(error, OSError):
        where = " -> ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
        text, code = f"{where}: {error.strerror or error}".removeprefix(": "), 1
    else:
        raise error
    print("error: " + text.replace("\n", " "), file=sys.stderr)
    return code


def _end_one_of_several(error: BaseException) -> int:
    """End this worker process after a delay, so that only the process that failed first prints its error."""
    rank = os.environ["RANK"]
    if isinstance(error, KeyboardInterrupt) and rank != "0":
        os._exit(130)  # rank 0 reports the interruption
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
