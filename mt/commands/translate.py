"""`mt translate`: translate line by line, with mt's own search or with an export."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from mt.config.compose import compose
from mt.config.overrides import Command, Inherited
from mt.config.schema import DecodingConfig, Device, Precision, key
from mt.errors import UserError, explain_os_errors
from mt.run_folder import find_checkpoint
from mt.runtime.process import say

if TYPE_CHECKING:
    from mt.decoding.exported import ExportedTranslator
    from mt.decoding.translator import Translator

READ_LINES = 4096  # lines of a file translated at a time


@dataclass(frozen=True)
class TranslateConfig(DecodingConfig):
    input: str | None = key(None, "source file, one sentence per line (default: standard input)")
    output: str | None = key(None, "file for the translations (default: standard output)")


def run(overrides: list[str]) -> int:
    """Translate in as many processes as `devices` says; an export always runs in this process."""
    from mt.decoding.exported import is_export
    from mt.runtime.launcher import run_in_processes

    config: TranslateConfig = compose(COMMAND, overrides)
    folder = find_checkpoint(config.checkpoint, exports=True)
    if is_export(folder):
        return translate_with_export(config, folder)
    code = run_in_processes([COMMAND.name, *overrides], config.devices, config.device)
    return translate(config) if code is None else code


def translate_with_export(config: TranslateConfig, folder: Path) -> int:
    """Like `translate`, but with an export and without importing torch."""
    from mt.decoding.exported import ExportedTranslator

    alone = config.devices == "1" and os.environ.get("WORLD_SIZE", "1") == "1"
    if not alone or config.device is Device.cuda or config.precision not in (Precision.fp32, Precision.auto):
        why = f"checkpoint={config.checkpoint} is an export, which runs in one process on the CPU"
        raise UserError(f"{why}: leave out device, devices and precision")
    engine = ExportedTranslator.load(folder, config.decode, config.threads)
    say(f"{folder}, {engine.describe()}")
    return _translate_lines(config, engine, lambda read: read())


def translate(config: TranslateConfig) -> int:
    """Translate every line of the input, even invalid UTF-8. Only translations go to standard output.

    If decode.nbest > 1, each hypothesis is a line "number ||| translation ||| score", with line numbers from 0.
    """
    from mt.checkpoint.folder import Checkpoint
    from mt.decoding.translator import Translator
    from mt.runtime import distributed
    from mt.runtime.device import start_runtime

    runtime = start_runtime(config.device, config.precision, config.threads, together=True)
    # Rank 0 decides, in case a training run changes the best checkpoint now
    folder = distributed.broadcast(lambda: find_checkpoint(config.checkpoint))
    translator = Translator.of(Checkpoint.open(folder), config.decode, runtime)
    if distributed.rank() == 0:
        return _translate_lines(config, translator, distributed.broadcast)
    while lines := distributed.broadcast(list[str]):
        translator.translate_nbest(lines)
    return 0


def _translate_lines(
    config: TranslateConfig,
    engine: "Translator | ExportedTranslator",
    shared: Callable[[Callable[[], list[str]]], list[str]],
) -> int:
    """Translate the input. `shared(read)` calls `read` on rank 0 and broadcasts its result."""
    input, output = config.input, config.output
    if input and output and all(map(os.path.exists, (input, output))) and os.path.samefile(input, output):
        raise UserError(f"output={output} is the input: choose another file")
    opened = _open("input", input, "rb", sys.stdin.buffer)
    with opened as source, _open("output", output, "wb", sys.stdout.buffer) as target:
        if source.isatty():
            say(f"{engine.describe()}: type one sentence per line, then Ctrl-D to end")
        damaged = number = cut = 0
        blocks = read_blocks(source, 1 if source.isatty() else READ_LINES)  # a person waits for each answer
        while lines := shared(lambda: next(blocks, [])):
            damaged += sum("\ufffd" in line for line in lines)
            if longer := engine.too_long(lines):
                say(f"warning: {longer} lines exceed the model's maximum length and are translated only in part")
            for found in engine.translate_nbest(lines):
                cut += found[0].at_limit
                nbest = "".join(f"{number} ||| {each.text} ||| {each.score:.4f}\n" for each in found)
                target.write((nbest if config.decode.nbest > 1 else found[0].text + "\n").encode())
                number += 1
            target.flush()
    if damaged:
        say(f"warning: {damaged} lines are not UTF-8: invalid bytes were read as U+FFFD")
    if cut:
        say(f"warning: {cut} translations reached the length limit (decode.max_length_a, decode.max_length_b)")
    return 0


def read_blocks(stream: Iterable[bytes], size: int) -> Iterator[list[str]]:
    """The lines of a stream, `size` at a time; invalid UTF-8 becomes U+FFFD."""
    lines, mark = iter(stream), "\ufeff"  # a byte order mark, dropped at the start of the stream only
    while block := list(islice(lines, size)):
        texts = [line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "replace") for line in block]
        texts[0], mark = texts[0].removeprefix(mark), ""
        yield texts


def _open(key: str, path: str | None, mode: str, standard: IO[bytes]) -> AbstractContextManager[IO[bytes]]:
    """The opened file of a key, or the standard stream, which is not closed."""
    if path is None:
        return nullcontext(standard)
    with explain_os_errors(f"{key}={path}, which is {Path(path).absolute()}"):
        return cast(IO[bytes], Path(path).open(mode))


COMMAND = Command(
    name="translate",
    help="translate text, one line of output per line of input",
    config=TranslateConfig,
    run=run,
    groups=("decode",),
    inherited=Inherited("checkpoint", sections=("decode",)),
    examples=(
        ("translate a file", "mt translate checkpoint=outputs/multi30k-en-de < in.en > out.de"),
        ("greedy search", "mt translate checkpoint=outputs/multi30k-en-de decode=greedy < in.en"),
        ("faster on a CPU, with an export", "mt translate checkpoint=outputs/multi30k-en-de/exports/NAME < in.en"),
    ),
)
