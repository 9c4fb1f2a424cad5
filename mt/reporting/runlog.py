"""Writes down a run: console, train.log, metrics.jsonl, TensorBoard and the progress bar.

It writes what it is given and decides nothing. Only one process of a run may own a folder.
"""

import json
import math
import os
import sys
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from mt.errors import UserError
from mt.reporting.progress import Progress


class RunLog:
    """The log of one run, kept in `folder`; with None only the console is written to, or nothing at all.

    `position` is where a resumed run's log stood: numbers that an earlier, killed process wrote after it are cut
    off, in metrics.jsonl and in TensorBoard's files; of a run's very beginning it is empty. None keeps everything.
    Every line is on disk when the call returns. A folder that can't be written to raises UserError.
    """

    def __init__(
        self,
        folder: Path | None,
        position: Mapping[str, int] | None = None,
        tensorboard: bool = True,
        console: bool = True,
    ) -> None:
        self._folder = folder
        self._console = console
        self._tensorboard_wanted = tensorboard and folder is not None
        self._writer: Any = None  # made at the first event: importing it takes seconds
        self._progress: Progress | None = None
        self._log: TextIO | None = None
        self._metrics: TextIO | None = None
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if position is not None:
                _cut_back(folder, position)
            self._log = _open_to_append(folder / "train.log")
            self._metrics = _open_to_append(folder / "metrics.jsonl")
        except OSError as error:
            self.close()
            raise UserError(
                f"{folder}: the run's log can't be written ({error.strerror or error}); "
                "make room or choose another folder with run.root="
            ) from error

    def position(self) -> dict[str, int]:
        """How long each file of numbers is now: what a run that goes on from here has written."""
        return {} if self._folder is None else {name: path.stat().st_size for name, path in _numbers(self._folder)}

    def info(self, text: str) -> None:
        """Text for the user, one line or several: plain on stderr, with the time before it in train.log."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        # Text that isn't valid UTF-8 (lone surrogates) must not end a training: it is written escaped.
        text = text.encode("utf-8", errors="backslashreplace").decode("utf-8")
        for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
            with suppress(OSError):  # a terminal that is gone must not cost the run
                if self._progress is not None and self._progress.live:
                    self._progress.write(line)
                elif self._console:
                    print(line, file=sys.stderr, flush=True)
            if self._log is not None:
                self._log.write(f"{stamp} {line}\n")

    def warning(self, text: str) -> None:
        """The same, marked as a warning."""
        self.info(f"warning: {text}")

    def scalars(self, update: int, values: Mapping[str, float], kind: str) -> None:
        """Numbers measured at an update: a line in metrics.jsonl and TensorBoard's `kind/name`.

        `kind` is what they were measured on: "train", "validation", … NaN and infinities are null in JSON.
        """
        numbers = {name: _plain(value) for name, value in values.items()}
        self._record(update, kind, numbers)
        self._to_tensorboard("add_scalar", update, {f"{kind}/{name}": value for name, value in numbers.items()})

    def text(self, update: int, tag: str, text: str) -> None:
        """A sample of text, such as a translation: kind "sample" in metrics.jsonl, a text in TensorBoard."""
        self._record(update, "sample", {"tag": tag, "text": text})
        self._to_tensorboard("add_text", update, {tag: text})

    def progress(self, total: float, start: float = 0, unit: str = "updates") -> Progress:
        """A progress bar from `start` to `total` (updates, or seconds with unit="s"); one at a time."""
        if self._progress is not None:
            self._progress.close()
        self._progress = Progress(total, start, unit, self._console)
        return self._progress

    def close(self) -> None:
        """Finish the bar and close the files; closing twice is harmless."""
        if self._progress is not None:
            self._progress.close()
        if self._writer is not None:
            with suppress(Exception):  # what is wrong with TensorBoard has been said, or comes too late to matter
                self._writer.close()
            self._writer = None
        for file in (self._log, self._metrics):
            if file is not None:
                file.close()
        self._log = self._metrics = None
        self._tensorboard_wanted = False

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _record(self, update: int, kind: str, values: Mapping[str, Any]) -> None:
        reserved = {"update", "kind"} & values.keys()
        if reserved:
            raise ValueError(f"{sorted(reserved)} can't be the name of a value")
        if self._metrics is not None:
            finite = {name: None if _is_not_finite(value) else value for name, value in values.items()}
            line = json.dumps({"update": update, "kind": kind, **finite}, allow_nan=False)
            self._metrics.write(line + "\n")

    def _to_tensorboard(self, method: str, update: int, values: Mapping[str, Any]) -> None:
        if not self._tensorboard_wanted:
            return
        try:
            if self._writer is None:
                self._writer = self._new_writer()
            for tag, value in values.items():
                getattr(self._writer, method)(tag, value, update)
            self._writer.flush()  # a kill must not leave a gap before the checkpoint it resumes from
        except Exception as error:  # whatever is wrong with TensorBoard, the training is worth more
            self._tensorboard_wanted = False
            reason = str(error).split("\n")[0] or type(error).__name__
            self.warning(f"no TensorBoard from here on ({reason}); metrics.jsonl holds the same numbers")

    def _new_writer(self) -> Any:
        assert self._folder is not None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(str(self._folder / "tensorboard"))


def _plain(value: Any) -> float | int:
    return value if type(value) is int else float(value)


def _is_not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _open_to_append(path: Path) -> TextIO:
    """Opened so that each line is written at once, and behind a complete line if a kill left half of one."""
    unfinished = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    file = path.open("a", buffering=1, encoding="utf-8", newline="\n")
    if unfinished:
        file.write("\n")
    return file


def _numbers(folder: Path) -> list[tuple[str, Path]]:
    """The files that numbers are appended to, by name."""
    events = sorted((folder / "tensorboard").glob("events.*")) if (folder / "tensorboard").is_dir() else []
    return [(str(path.relative_to(folder)), path) for path in (folder / "metrics.jsonl", *events) if path.exists()]


def _cut_back(folder: Path, position: Mapping[str, int]) -> None:
    """Take out what was written after `position` was noted; a file that was not there yet goes."""
    numbers = _numbers(folder)
    foreign = [name for name, path in numbers if path.stat().st_size] if not (folder / "config.yaml").exists() else []
    if foreign and not position:
        raise UserError(f"{folder} holds {', '.join(foreign)}, which no run of mt wrote: choose another run.name")
    for name, path in numbers:
        if name not in position:
            path.unlink()
        elif path.stat().st_size > position[name]:
            os.truncate(path, position[name])
