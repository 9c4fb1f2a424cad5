"""`mt <command> [key=value ...]`: from a command line to a job and its exit code, and what a mistake looks like.

Exit codes: 0 done, 2 a mistake in the command or its input, 3 data that is neither here nor to be had, 1 the system
refused or a fault of mt, 128 + n stopped by signal n (130 is Ctrl-C), 141 nobody reads the output.

`mt --started` is what the processes of a job are started with, which lies in JOB_VARIABLE; it is not for users.
"""

import atexit
import gc
import importlib
import io
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from mt.commands import COMMANDS, Command, help_text, overview
from mt.config import Corpus, Device, Job, TrainJob
from mt.errors import UserError
from mt.jobs import from_plain, to_plain, walk
from mt.overrides import expand, literal_value, nearest
from mt.runtime.signals import end_with_parent

FALLBACK_RECIPE = "captions"
UNAVAILABLE = 3
JOB_VARIABLE = "MT_JOB"
# By command: the key that names a checkpoint, the sections taken from it, and what in them is the command's own
STORED: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "evaluate": ("checkpoint", ("decode.",), ()),
    "translate": ("checkpoint", ("decode.",), ()),
    "train": (
        "train.init_from",
        ("model.", "tokenizer."),
        ("model.dropout", "model.init", "tokenizer.model", "tokenizer.sampling"),
    ),
}


def main(argv: list[str] | None = None) -> int:
    """Run one command line and return its exit code; a user's mistake is one line on stderr."""
    if argv is None:  # as a program: looking for cycles among torch's modules takes half a second of each start
        gc.set_threshold(100_000)
        atexit.register(gc.freeze)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # whatever the locale
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    arguments = sys.argv[1:] if argv is None else argv
    if "RANK" in os.environ:
        return _one_of_many(arguments)
    try:
        return _run_and_flush(arguments)
    except BaseException as error:
        return _explained(error)


def _run_and_flush(arguments: list[str]) -> int:
    code = _run(arguments)
    sys.stdout.flush()
    return code


def _one_of_many(arguments: list[str]) -> int:
    """The same as one of the processes that torch's launcher started: they end together, and one of them complains."""
    end_with_parent()
    try:
        code = _run_and_flush(arguments)
        if "mt.runtime.distributed" in sys.modules:
            from mt.runtime import distributed

            distributed.leave()
        return code
    except BaseException as error:
        # Whose fault it is speaks first. The launcher sees it end and ends the others, who wait here for that.
        if isinstance(error, KeyboardInterrupt) and os.environ["RANK"] != "0":
            os._exit(130)  # as all of them do
        lost = "mt.runtime.distributed" in sys.modules and sys.modules["mt.runtime.distributed"].lost_contact(error)
        time.sleep(10 if lost else 0 if os.environ["RANK"] == "0" else 2)
        if lost:
            error = UserError(f"process {os.environ['RANK']} lost contact with the others")
        try:
            code = _explained(error)
        except BaseException:
            print(f"process {os.environ['RANK']}:", file=sys.stderr)
            traceback.print_exc()
            code = 1
        sys.stderr.flush()
        os._exit(code)  # at once: what would be tidied up waits for the others


def _explained(error: BaseException) -> int:
    """Say in one line what is the user's to mend and give the exit code; everything else is raised again."""
    if isinstance(error, UserError):
        return _complain(str(error), UNAVAILABLE if _is_unavailable(error) else 2)
    if isinstance(error, KeyboardInterrupt):
        return _complain("interrupted", 130)
    if isinstance(error, BrokenPipeError):
        # Else the interpreter complains at exit, when it flushes what nobody reads
        with suppress(OSError, ValueError):
            stdout = sys.stdout.fileno()
            os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
        return 141
    if isinstance(error, OSError):
        where = " -> ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
        return _complain(f"{where}: {error.strerror or error}".removeprefix(": "), 1)
    raise error


def _is_unavailable(error: UserError) -> bool:
    from mt.data.download import DataUnavailable

    return isinstance(error, DataUnavailable)


def _complain(text: str, code: int) -> int:
    print("error: " + text.replace("\n", " "), file=sys.stderr)
    return code


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"mt {version('mt')}")
        except PackageNotFoundError:
            print("mt, not installed: run from its folder")
        return 0
    name, *rest = arguments
    if name == "--started" and JOB_VARIABLE in os.environ:
        started = json.loads(os.environ[JOB_VARIABLE])
        if os.getppid() != started["launcher"]:
            raise UserError("the process that started this one is gone")
        command = COMMANDS[started["command"]]
        return _here(command, from_plain(command.job, started["job"]))
    if name not in COMMANDS:
        raise UserError(f"mt has no command {name!r}: use {', '.join(COMMANDS)}{nearest(name, COMMANDS)}")
    command = COMMANDS[name]
    overrides, flags = _flags(command, rest)
    if "--help" in flags:
        print(help_text(command))
    elif "--cfg" in flags:
        from mt.compose import to_yaml

        print(to_yaml(_job(command, overrides)), end="")
    elif "--multirun" in flags:
        return _sweep(command, overrides)
    else:
        return _train(overrides) if name == "train" else _call(command, _job(command, overrides))
    return 0


def _flags(command: Command, arguments: list[str]) -> tuple[list[str], set[str]]:
    """Overrides and flags, which may stand anywhere."""
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
        if flag == "--multirun" and command.name != "train":
            raise UserError(f"-m is for mt train: mt {command.name} runs once")
        flags.add(flag)
    if {"--cfg", "--multirun"} <= flags:
        raise UserError("--cfg job shows one configuration: leave out -m")
    return overrides, flags


def _job(command: Command, overrides: list[str]) -> Job:
    from mt.compose import compose

    return compose(command.name, overrides, _stored(command.name, overrides))


def _begun_run(overrides: list[str], named: frozenset[str]) -> Path | None:
    """The folder of the run that the overrides mean, if it has saved a checkpoint."""
    from mt.compose import compose

    job = compose("train", overrides, named=named)
    assert isinstance(job, TrainJob) and job.run.name
    folder = Path(job.run.root) / job.run.name
    return folder if (folder / "checkpoints" / "index.json").exists() and (folder / "config.yaml").exists() else None


def _stored(command: str, overrides: list[str], named: frozenset[str] = frozenset()) -> dict[str, Any]:
    """What a checkpoint that the command begins from brings: how to decode, or what its weights and tokenizers are."""
    key, sections, own = STORED.get(command, ("", (), ()))
    path = literal_value(command, overrides, key) if key else None
    if not path:
        return {}
    from mt.checkpoint import config_of, read_config

    begun = _begun_run(overrides, named) if command == "train" else None
    # A run that has a checkpoint has taken over what it began from, and needs that no more
    values = walk(read_config(begun) if begun else config_of(path, key))
    return {name: value for name, _, value in values if name.startswith(sections) and name not in own}


def _call(command: Command, job: Job) -> int:
    """Do it in this process, or in as many as the job asks for."""
    devices = job.train.devices if isinstance(job, TrainJob) else getattr(job, "devices", "1")
    if devices != "1":
        from mt.runtime.launcher import processes_to_start, run_processes

        device = job.train.device if isinstance(job, TrainJob) else getattr(job, "device", Device.auto)
        count = processes_to_start(devices, device)
        if count > 1:
            plain = {"command": command.name, "job": to_plain(job), "launcher": os.getpid()}
            return run_processes(["--started"], count, {JOB_VARIABLE: json.dumps(plain)})
    return _here(command, job)


def _here(command: Command, job: Job) -> int:
    module, _, function = command.entry.partition(":")
    entry: Callable[[Job], int | None] = getattr(importlib.import_module(module), function)
    return entry(job) or 0


def _train(overrides: list[str], named: frozenset[str] = frozenset()) -> int:
    """Train; where nobody chose a recipe and the default one's text is not to be had, train on captions."""
    from mt.compose import compose, recipe_is_chosen

    stored = _stored("train", overrides, named)
    job = compose("train", overrides, stored, named)
    assert isinstance(job, TrainJob)
    elsewhere = any(override.startswith("data.raw_dir=") for override in overrides)
    default = job.data.corpus is Corpus.multi30k and not recipe_is_chosen(overrides) and not elsewhere
    may_fall_back = default and {job.data.source, job.data.target} == {"en", "de"}
    reason = ""
    try:
        code = _call(COMMANDS["train"], job)
        if code != UNAVAILABLE or not may_fall_back:  # of processes that were started, which have said why
            return code
    except UserError as error:
        if not (may_fall_back and _is_unavailable(error)):
            raise
        reason = f" {error}"
    notice = (
        "Multi30k is neither here nor reachable, so this trains on generated captions instead"
        f" (experiment={FALLBACK_RECIPE}): its scores say nothing about Multi30k.{reason}"
    )
    speaks = os.environ.get("RANK", "0") == "0"
    if speaks:
        print(notice, file=sys.stderr, flush=True)
    code = _call(COMMANDS["train"], compose("train", [*overrides, f"experiment={FALLBACK_RECIPE}"], stored, named))
    if speaks:
        print(notice, file=sys.stderr, flush=True)
    return code


def _sweep(command: Command, overrides: list[str]) -> int:
    """One training per combination, in order; all are checked before the first, the first failure ends it."""
    from mt.compose import compose

    lines, varied = expand(command.name, overrides)
    names = []
    for line in lines:
        job = compose("train", line, _stored("train", line, varied), varied)
        assert isinstance(job, TrainJob) and job.run.name is not None
        names.append(job.run.name)
    for number, (line, name) in enumerate(zip(lines, names, strict=True), start=1):
        place = f"training {number} of {len(lines)}, {name}"
        if os.environ.get("RANK", "0") == "0":
            print(place, file=sys.stderr, flush=True)
        try:
            code = _train(line, varied)
        except UserError as error:
            raise UserError(f"{place}: {error}") from error
        except BaseException:
            print(f"stopped in {place}", file=sys.stderr, flush=True)
            raise
        if code:
            print(f"stopped in {place}: exit code {code}", file=sys.stderr, flush=True)
            return code
    return 0
