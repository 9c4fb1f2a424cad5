"""`mt translate`: which engine, and the lines in and out of it. Imports torch only where torch translates."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import IO, cast

from mt.checkpoint import Checkpoint
from mt.config import Device, Precision, TranslateJob
from mt.config import Engine as Choice
from mt.decoding.exported import ExportedTranslator, find_export, installed
from mt.decoding.translation import Engine, Translation
from mt.errors import UserError

READ_LINES = 4096  # lines translated together when reading a file
NVIDIA_DRIVER = "/dev/nvidiactl"


def translate_command(job: TranslateJob) -> None:
    """`mt translate`: a line out for a line in, whatever the bytes; nothing else on standard output.

    With decode.nbest above 1 a line has several: "line number ||| translation ||| score", numbers from 0.
    """
    exported = _exported(job)
    tool = _load(exported, job) if exported else None
    if tool:
        _say(f"{exported}, {tool.describe()}")
        _translate(job, tool, lambda read: read())
    else:
        _with_torch(job)


def _load(exported: Path, job: TranslateJob) -> ExportedTranslator | None:
    """None where it can't be had and was not asked for: the run itself translates."""
    try:
        return ExportedTranslator.load(exported, job.decode, job.threads)
    except (UserError, ImportError) as error:
        if job.decode.engine is Choice.ctranslate2 or exported == Path(job.checkpoint).absolute():
            raise UserError(str(error)) from error
        _say(f"warning: {error}; translating with the run itself")
        return None


def _exported(job: TranslateJob) -> Path | None:
    """The exported model to translate with, where decode.engine and the other options allow it.

    Raises UserError where it was asked for by name and can't be had.
    """
    engine = job.decode.engine
    given = Path(job.checkpoint).absolute()
    is_export = (given / "model.bin").exists()
    if engine is Choice.torch:
        if is_export:
            raise UserError(f"checkpoint={job.checkpoint} is exported: translate with the run, or decode.engine=auto")
        return None
    if engine is Choice.auto and not is_export and job.device is Device.auto and _sees_gpu():
        return None
    obstacle = ""
    alone = job.devices == "1" and os.environ.get("WORLD_SIZE", "1") == "1"
    if not alone or job.device is Device.cuda or job.precision not in (Precision.fp32, Precision.auto):
        obstacle = "CTranslate2 translates here on the CPU, in one process: leave out device, precision and devices"
    elif not installed():
        obstacle = "CTranslate2 is not installed: pip install ctranslate2"
    found = given if is_export else find_export(Checkpoint.open(job.checkpoint))
    if not found and not obstacle:
        obstacle = f"there is no export of that checkpoint: mt export checkpoint={job.checkpoint}"
    if obstacle and (engine is Choice.ctranslate2 or is_export):
        raise UserError(f"checkpoint={job.checkpoint} decode.engine={engine.value}: {obstacle}")
    return None if obstacle else found


def _sees_gpu() -> bool:
    """As far as can be told without torch, which takes longer to ask than translating takes."""
    return Path(NVIDIA_DRIVER).exists() and os.environ.get("CUDA_VISIBLE_DEVICES") != ""


def _with_torch(job: TranslateJob) -> None:
    """With mt's own engine, in as many processes as were started."""
    from mt.decoding.translator import Translator
    from mt.runtime import distributed
    from mt.runtime.device import start

    start(job.device, job.precision, job.threads, together=True)
    folder = distributed.on_leader(lambda: str(Checkpoint.open(job.checkpoint).folder))
    translator = Translator.load(folder, job.decode, job.device, job.precision, job.threads)
    if distributed.rank() == 0:
        _translate(job, translator, distributed.on_leader)
        return
    while lines := distributed.on_leader(list[str]):
        translator.translate_nbest(lines)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _translate(job: TranslateJob, engine: Engine, shared: Callable[[Callable[[], list[str]]], list[str]]) -> None:
    """Every line through the engine. `shared` reads, and hands what was read to other processes where there are."""
    if job.input and job.output and os.path.exists(job.output) and os.path.samefile(job.input, job.output):
        raise UserError(f"output={job.output} is the input: name another file")
    source_file = _open("input", job.input, "rb", sys.stdin.buffer)
    with source_file as source, _open("output", job.output, "wb", sys.stdout.buffer) as target:
        if source.isatty():
            _say(f"one sentence a line, {engine.describe()}; Ctrl-D ends")
        damaged = number = cut = 0
        blocks = _blocks(source, 1 if source.isatty() else READ_LINES)  # a person waits for each answer
        while lines := shared(lambda: next(blocks, [])):
            damaged += sum("\ufffd" in line for line in lines)
            if longer := engine.too_long(lines):
                _say(f"warning: {longer} lines are longer than the model's positions: their ends are not translated")
            for hypotheses in engine.translate_nbest(lines):
                cut += hypotheses[0].at_limit
                target.write(_format(number, hypotheses, job.decode.nbest).encode("utf-8"))
                number += 1
            target.flush()
    if damaged:
        _say(f"warning: {damaged} lines are not UTF-8: their bad bytes were read as U+FFFD")
    if cut:
        _say(f"warning: {cut} translations reached the length limit (decode.max_length_a, decode.max_length_b)")


def _format(number: int, hypotheses: list[Translation], nbest: int) -> str:
    if nbest == 1:
        return hypotheses[0].text + "\n"
    return "".join(f"{number} ||| {found.text} ||| {found.score:.4f}\n" for found in hypotheses)


def _blocks(stream: Iterable[bytes], size: int) -> Iterator[list[str]]:
    lines = iter(stream)
    mark = "\ufeff"  # a byte order mark, at the file's start only
    while block := list(islice(lines, size)):
        texts = [line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace") for line in block]
        texts[0], mark = texts[0].removeprefix(mark), ""
        yield texts


def _open(key: str, path: str | None, mode: str, standard: IO[bytes]) -> AbstractContextManager[IO[bytes]]:
    """The file that a key names, or the standard stream, which stays open."""
    if path is None:
        return nullcontext(standard)
    try:
        return cast(IO[bytes], Path(path).open(mode))
    except OSError as error:
        raise UserError(f"{key}={path}: {error.strerror} ({Path(path).absolute()})") from error
