"""The log of a run: console, train.log, metrics.jsonl, TensorBoard and the progress bar."""

import json
import math
import os
import sys
import time
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from mt.errors import UserError, explain_os_errors, first_line
from mt.run_folder import RunFolder


class RunLog(AbstractContextManager["RunLog"]):
    """The log of one run, which only one process may open. Without a run, it writes to the console only, or nowhere.

    A resumed run passes the `position` of its checkpoint: metrics that a killed process logged after it are removed
    from metrics.jsonl and TensorBoard's files. It is empty for a new run; None keeps everything. Every call flushes
    its lines. Raises UserError if the folder cannot be written to.
    """

    def __init__(self, run: RunFolder | None, position: Mapping[str, int] | None = None, console: bool = True) -> None:
        self._run = run
        self._console = console
        self._tensorboard_wanted = run is not None
        self._writer: Any = None  # created for the first event, because importing it takes seconds
        self._bar: Any = None
        self._log: TextIO | None = None
        self._metrics: TextIO | None = None
        if run is None:
            return
        with explain_os_errors(f"cannot write the log in {run.path} (free some space, or set another run.root)"):
            run.path.mkdir(parents=True, exist_ok=True)
            if position is not None:
                _cut_back(run, position)
            self._log = _open_to_append(run.log)
            self._metrics = _open_to_append(run.metrics)

    def position(self) -> dict[str, int]:
        """The length of each metrics file, at which a resumed run continues it."""
        return {} if self._run is None else {name: path.stat().st_size for name, path in _numbers(self._run)}

    def info(self, text: str) -> None:
        """Print one or more lines on stderr, and write them to train.log with the time."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        text = text.encode("utf-8", errors="backslashreplace").decode("utf-8")  # lone surrogates must not end a run
        for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
            with suppress(OSError):  # a closed terminal must not end a run
                if self._bar is not None and not self._bar.disable:
                    self._bar.write(line, file=sys.stderr)
                elif self._console:
                    print(line, file=sys.stderr, flush=True)
            if self._log is not None:
                self._log.write(f"{stamp} {line}\n")

    def warning(self, text: str) -> None:
        """Like `info`, but marked as a warning."""
        self.info(f"warning: {text}")

    def scalars(self, update: int, values: Mapping[str, float], kind: str) -> None:
        """Log metrics of `kind` "train" or "validation"; those that are not finite become null in metrics.jsonl."""
        numbers = {name: value if type(value) is int else float(value) for name, value in values.items()}
        self._record(update, kind, numbers)
        self._to_tensorboard("add_scalar", update, {f"{kind}/{name}": value for name, value in numbers.items()})

    def text(self, update: int, tag: str, text: str) -> None:
        """Log a text, such as a translation: kind "sample" in metrics.jsonl, a text in TensorBoard."""
        self._record(update, "sample", {"tag": tag, "text": text})
        self._to_tensorboard("add_text", update, {tag: text})

    def progress(self, done: float, postfix: str = "") -> None:
        """Show on a terminal that `done` percent of the run is done, with the remaining time and `postfix`."""
        if self._bar is None:
            self._bar = _progress_bar(done, self._console)
        self._bar.set_postfix_str(postfix, refresh=False)
        self._bar.update(done - self._bar.n)

    def end_progress(self) -> None:
        """End the progress bar."""
        if self._bar is not None:
            self._bar.close()
        self._bar = None

    def close(self) -> None:
        """Finish the bar and close the files; closing twice is harmless."""
        self.end_progress()
        if self._writer is not None:
            with suppress(Exception):  # TensorBoard's errors are reported earlier, or come too late to matter
                self._writer.close()
            self._writer = None
        for file in (self._log, self._metrics):
            if file is not None:
                file.close()
        self._log = self._metrics = None
        self._tensorboard_wanted = False

    def __exit__(self, *error: object) -> None:
        self.close()

    def _record(self, update: int, kind: str, values: Mapping[str, Any]) -> None:
        if reserved := {"update", "kind"} & values.keys():
            raise ValueError(f"{sorted(reserved)} cannot be the name of a value")
        if self._metrics is not None:
            finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
            self._metrics.write(json.dumps({"update": update, "kind": kind, **finite}, allow_nan=False) + "\n")

    def _to_tensorboard(self, method: str, update: int, values: Mapping[str, Any]) -> None:
        if not self._tensorboard_wanted:
            return
        try:
            if self._writer is None and self._run is not None:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    from torch.utils.tensorboard import SummaryWriter
                self._writer = SummaryWriter(str(self._run.tensorboard))
            for tag, value in values.items():
                getattr(self._writer, method)(tag, value, update)
            self._writer.flush()  # a kill must leave no gap before the checkpoint that the run resumes from
        except Exception as error:  # no error of TensorBoard may end a training
            self._tensorboard_wanted = False
            self.warning(f"TensorBoard is off from now on ({first_line(error)}); metrics.jsonl has the same metrics")


def _progress_bar(done: float, shown: bool) -> Any:
    size = (0, 0)
    with suppress(OSError, ValueError):
        size = os.get_terminal_size(sys.stderr.fileno())
    return tqdm(
        total=100,
        initial=done,
        bar_format="{l_bar}{bar}| [{elapsed}<{remaining}{postfix}]",
        file=sys.stderr,
        disable=not (shown and sys.stderr.isatty()),
        ncols=80,
        nrows=24,
        dynamic_ncols=min(size) > 0,  # some containers report a size of 0, which would hide the bar
        miniters=0,  # otherwise tqdm adapts to quick updates, and then shows no slow ones
    )


def _open_to_append(path: Path) -> TextIO:
    """Open a line-buffered file for appending; first end an incomplete line that a kill left."""
    unfinished = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    file = path.open("a", buffering=1, encoding="utf-8", newline="\n")
    if unfinished:
        file.write("\n")
    return file


def _numbers(run: RunFolder) -> list[tuple[str, Path]]:
    """The existing metrics files, by name."""
    events = sorted(run.tensorboard.glob("events.*")) if run.tensorboard.is_dir() else []
    return [(str(path.relative_to(run.path)), path) for path in (run.metrics, *events) if path.exists()]


def _cut_back(run: RunFolder, position: Mapping[str, int]) -> None:
    """Truncate the metrics files to `position`, and remove those that did not exist then."""
    numbers = _numbers(run)
    foreign = [name for name, path in numbers if path.stat().st_size] if not run.config.exists() else []
    if foreign and not position:
        raise UserError(f"{run.path} has files that mt did not write ({', '.join(foreign)}): choose another run.name")
    for name, path in numbers:
        if name not in position:
            path.unlink()
        elif path.stat().st_size > position[name]:
            os.truncate(path, position[name])
