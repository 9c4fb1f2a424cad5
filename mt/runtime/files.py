"""Small files that are there whole or as they were before, and a folder that has one writer."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Make the folder and hold it; UserError where another living process holds it, or it can't be made."""
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = (folder / ".lock").open("w", encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write to {folder.absolute()}: {error.strerror or error}") from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process is writing {folder}: wait for it, or choose another run.name") from None
        except OSError as error:
            raise UserError(f"{folder} is on a file system without locks ({error.strerror}): use another") from error
        yield
