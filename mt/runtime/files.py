"""Small files that are there whole or as they were before."""

import os
from pathlib import Path


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
