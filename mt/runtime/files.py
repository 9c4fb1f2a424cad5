"""Small files that are there whole or as they were before, and a folder that has one writer."""

import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from mt.errors import UserError


def write_whole(path: Path, text: str) -> None:
    """Write text to a file by way of a temporary name, so that a kill at any moment leaves the old or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def temporary_beside(path: Path, take_over: bool = False) -> Path:
    """A hidden name beside a path, to write it under first; what dead processes of this machine left so goes.

    `take_over`: the newest of these is put under the new name instead, to go on with.
    """
    host = socket.gethostname()
    own = path.with_name(f".{path.name}.{host}.{os.getpid()}")
    # in a container that starts again the dead one may have had our own number
    numbered = ((left.suffix[1:], left) for left in path.parent.glob(f".{path.name}.{host}.*"))
    dead = [left for number, left in numbered if number.isdecimal() and (left == own or not _alive(int(number)))]
    if take_over and own not in dead:
        with suppress(OSError):  # another process may take it over, or away, at the same moment
            max(dead, key=lambda left: left.stat().st_mtime, default=own).rename(own)
    for left in dead:
        if left != own or not take_over:
            shutil.rmtree(left, ignore_errors=True)
    return own


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


@contextmanager
def only_writer(
    folder: Path, patience: float = 30.0, report: Callable[[str], None] = lambda line: None
) -> Iterator[None]:
    """Make the folder and hold it. Where another living process holds it, say who, and wait for `patience` seconds.

    UserError where it is still held then (a killed run may still be saving), or can't be made.
    """
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = (folder / ".lock").open("a+", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write to {folder.absolute()}: {error.strerror or error}") from error
    with stream:
        end, told = time.monotonic() + patience, False
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holder = _holder(stream)
            except OSError as error:
                reason = f"{folder} is on a file system without locks ({error.strerror})"
                raise UserError(f"{reason}: use another") from error
            if time.monotonic() >= end:
                raise UserError(f"{holder} is writing {folder}: wait for it, or choose another run.name")
            if not told:
                report(f"{holder} is writing {folder}: waiting up to {patience:.0f} seconds for its end")
                told = True
            time.sleep(0.1)
        stream.truncate(0)
        stream.write(f"process {os.getpid()} on {socket.gethostname()}")
        stream.flush()
        yield


def _holder(stream: TextIO) -> str:
    stream.seek(0)
    return stream.read().strip() or "another process"
