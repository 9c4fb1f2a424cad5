"""Files and folders that are complete or absent (written under a hidden name, synced, renamed); hashes; locks."""

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

_REPLACED = ".replaced"  # suffix of a folder that makes room for a new one


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
    """Write a file so that a kill at any moment leaves either the old content or the new."""
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

    A folder of that name is replaced; a kill at any moment leaves the old one or the new one, though the next call, or
    `restore_replaced`, may have to put the old one back. With `resume`, the temporary folder of a killed process is
    taken over with its content, and if another process has made `path` meanwhile, that one stays.
    """
    temporary, replaced = _temporary_folder(path, resume), path.with_name(f".{path.name}{_REPLACED}")
    _settle(replaced, path)
    try:
        temporary.mkdir(parents=True, exist_ok=resume)
        yield temporary
        if not (resume and path.exists()):
            for each in (*temporary.iterdir(), temporary):
                _sync(each)
            if path.exists():
                path.rename(replaced)
            temporary.rename(path)
            _sync(path.parent)
            shutil.rmtree(replaced, ignore_errors=True)
    except BaseException as error:
        unfinished = isinstance(error, Unfinished) or not isinstance(error, Exception)
        if not (resume and unfinished):
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    shutil.rmtree(temporary, ignore_errors=True)


def restore_replaced(parent: Path) -> None:
    """Put back every folder that a killed process had moved aside but not replaced yet."""
    for path in parent.glob(f".*{_REPLACED}"):
        _settle(path, parent / path.name.removeprefix(".").removesuffix(_REPLACED))


def _settle(replaced: Path, path: Path) -> None:
    """End a replacement that a kill interrupted."""
    if replaced.exists() and path.exists():
        shutil.rmtree(replaced, ignore_errors=True)
    elif replaced.exists():
        replaced.rename(path)


def _temporary_folder(path: Path, resume: bool) -> Path:
    """A name for this process; temporary folders of dead processes on this machine are removed or taken over."""
    host = socket.gethostname()
    own = path.with_name(f".{path.name}.{host}.{os.getpid()}")
    numbered = ((left.suffix[1:], left) for left in path.parent.glob(f".{path.name}.{host}.*"))
    # A restarted container may give this process the number of the dead one
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
    """Hold a folder's lock file, so that one process at a time writes the folder.

    If another process holds it, report which one, and wait up to `patience` seconds, because a killed run may still be
    saving. Raises UserError.
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
                raise UserError(f"{holder} is writing {folder}: wait until it ends, or choose another run.name")
            if not told:
                report(f"{holder} is writing {folder}: waiting up to {patience:.0f} seconds for it to end")
                told = True
            time.sleep(0.1)
        stream.truncate(0)
        stream.write(f"process {os.getpid()} on {socket.gethostname()}")
        stream.flush()
        yield
