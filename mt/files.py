"""Atomic writes of files and folders (written under a hidden name, synced, renamed), hashes and locks."""

import hashlib
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from mt.errors import Corrupt, UserError, explain_os_errors

_REPLACED = ".replaced"  # suffix of the old folder during a replacement


class Unfinished(UserError):
    """Raised inside `atomic_folder(resume=True)` to keep the temporary folder for the next call."""


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def verify_hash(path: Path, expected: object) -> None:
    """Raise Corrupt if a file cannot be read or its SHA-256 is not the expected one."""
    with explain_os_errors(f"{path} cannot be read", Corrupt):
        found = sha256_of(path)
    if found != expected:
        raise Corrupt(f"{path} is corrupt: its SHA-256 differs from the recorded one")


def atomic_write(path: Path, content: str | IO[bytes]) -> None:
    """Write a file atomically: a kill at any moment leaves either the old or the new content."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as stream:
            if isinstance(content, str):
                stream.write(content.encode("utf-8"))
            else:
                shutil.copyfileobj(content, stream, 1 << 20)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path, resume: bool = False) -> Iterator[Path]:
    """A temporary folder that becomes `path` at the end of the block, unless the block raises.

    An existing `path` is replaced. A kill at any moment leaves the old or the new folder, but the next call, or
    `restore_replaced`, may have to restore the old one. With `resume`, the block continues in the temporary folder
    of a killed process, and `path` is kept if another process has created it in the meantime.
    """
    temporary, replaced = _temporary_folder(path, resume), path.with_name(f".{path.name}{_REPLACED}")
    _settle(replaced, path)
    try:
        temporary.mkdir(parents=True, exist_ok=resume)
        yield temporary
        for each in (*temporary.iterdir(), temporary):
            _sync(each)
        if path.exists() and not resume:
            path.rename(replaced)
        try:
            temporary.rename(path)
        except OSError:  # renaming never replaces a folder that has files
            if not (resume and path.exists()):
                raise
        _sync(path.parent)
        shutil.rmtree(replaced, ignore_errors=True)
    except BaseException as error:
        unfinished = isinstance(error, Unfinished) or not isinstance(error, Exception)
        if not (resume and unfinished):
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    shutil.rmtree(temporary, ignore_errors=True)


def restore_replaced(parent: Path) -> None:
    """Restore every folder that a killed process had moved aside but not yet replaced."""
    for path in parent.glob(f".*{_REPLACED}"):
        _settle(path, parent / path.name.removeprefix(".").removesuffix(_REPLACED))


def _settle(replaced: Path, path: Path) -> None:
    """Complete or undo an interrupted replacement."""
    if replaced.exists() and path.exists():
        shutil.rmtree(replaced, ignore_errors=True)
    elif replaced.exists():
        replaced.rename(path)


def _temporary_folder(path: Path, resume: bool) -> Path:
    """This process's temporary folder; removes or takes over those of dead processes on this machine."""
    host = socket.gethostname()
    own = path.with_name(f".{path.name}.{host}.{os.getpid()}")
    numbered = ((left.suffix[1:], left) for left in path.parent.glob(f".{path.name}.{host}.*"))
    # A restarted container may reuse the dead process's pid
    dead = [left for number, left in numbered if number.isdecimal() and (left == own or not _alive(int(number)))]
    if resume and own not in dead:
        with suppress(OSError):  # another process may take it over, or remove it, at the same moment
            max(dead, key=lambda left: left.stat().st_mtime, default=own).rename(own)
    for left in dead:
        if left != own or not resume:
            shutil.rmtree(left, ignore_errors=True)
    return own


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(lock: Path, patience: float = 30.0, report: Callable[[str], None] = lambda line: None) -> Iterator[None]:
    """Hold a folder's lock file, so that only one process at a time writes to the folder.

    If another process holds the lock, report it and wait up to `patience` seconds, because a stopped run may still be
    saving. Raises UserError if it is not released.
    """
    import fcntl

    folder = lock.parent
    with explain_os_errors(f"cannot write to {folder.absolute()}"):
        folder.mkdir(parents=True, exist_ok=True)
        stream = lock.open("a+", encoding="utf-8")
    with stream:
        end, told = time.monotonic() + patience, False
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                stream.seek(0)
                holder = stream.read().strip() or "another process"
            except OSError as error:
                raise UserError(f"{folder} is on a file system without locks ({error.strerror})") from error
            if time.monotonic() >= end:
                raise UserError(f"{holder} is writing to {folder}: wait until it ends, or use another folder")
            if not told:
                report(f"{holder} is writing to {folder}: waiting up to {patience:.0f} seconds for it to end")
                told = True
            time.sleep(0.1)
        stream.truncate(0)
        stream.write(f"process {os.getpid()} on {socket.gethostname()}")
        stream.flush()
        yield
