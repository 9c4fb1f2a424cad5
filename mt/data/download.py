"""Fetching files: to a temporary name, resumed after a cut, checked, and only then renamed."""

import hashlib
import http.client
import io
import os
import tarfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from lzma import LZMAError
from pathlib import Path
from shutil import copyfileobj
from typing import IO

from mt.errors import UserError

Report = Callable[[str], None]
SUMS = "SHA256SUMS"

_CHUNK = 1 << 20
_REPORT_SECONDS = 5.0


class DataUnavailable(UserError):
    """A file is neither here nor to be had from the network now."""


class _Cut(Exception):
    """The transfer ended before the file did."""


def sha256_of(path: Path) -> str:
    """The SHA-256 sum of a file in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_sha256(path: Path, expected: str) -> None:
    """UserError naming the file and both sums when they differ."""
    found = sha256_of(path)
    if found != expected:
        raise UserError(
            f"{path} is damaged or another version (SHA-256 {found}, expected {expected}): replace it or delete it"
        )


def recorded_sha256(path: Path) -> str | None:
    """The sum that the SHA256SUMS beside a file gives for it, if any."""
    sums = path.with_name(SUMS)
    for line in sums.read_text("utf-8").splitlines() if sums.exists() else []:
        sha256, _, name = line.partition("  ")
        if name == path.name:
            return sha256
    return None


def check_recorded(path: Path, report: Report) -> None:
    """Check a file against the SHA256SUMS beside it; a file not listed there yet is recorded now."""
    if expected := recorded_sha256(path):
        check_sha256(path, expected)
        return
    sums = path.with_name(SUMS)
    before = sums.read_text("utf-8") if sums.exists() else ""
    try:
        save(io.BytesIO(f"{before}{sha256_of(path)}  {path.name}\n".encode()), sums)
    except OSError as error:
        # a shared folder that only others may write is as good a place for the files as any
        report(f"cannot record the SHA-256 of {path} in {sums}: {error.strerror or error}")


def save(content: IO[bytes], path: Path) -> None:
    """Write to a temporary name, then rename: the file is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as output:
            copyfileobj(content, output, _CHUNK)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def fetch(
    url: str, path: Path, sha256: str | None = None, timeout: float = 5.0, report: Report = lambda line: None
) -> None:
    """Download url to path; a transfer cut half-way goes on from NAME.part, now and in the next call.

    `timeout` is in seconds, for connecting and for each silence after it. Proxies come from the environment.
    DataUnavailable when the address cannot be reached or stops short, UserError for a wrong checksum.
    """
    part = path.with_name(path.name + ".part")
    make_folder(path.parent)
    while True:
        before = _size(part)
        try:
            _transfer(url, part, timeout, report)
            break
        except (_Cut, OSError, http.client.HTTPException) as error:
            # as long as bytes come in, a cut is no reason to give up
            if _size(part) <= before:
                raise DataUnavailable(
                    f"cannot download {url} ({_reason(error)}): run again when it can be reached, or put the "
                    f"file into {path.parent.absolute()} by hand"
                ) from None
    if sha256 is not None:
        found = sha256_of(part)
        if found != sha256:
            part.unlink()
            raise DataUnavailable(
                f"{url} gave another file than expected (SHA-256 {found}, expected {sha256}): run again, or "
                f"put the right file at {path.absolute()}"
            )
    os.replace(part, path)


def _transfer(url: str, part: Path, timeout: float, report: Report) -> None:
    """One connection's worth: append to `part`, or start over when the server knows no ranges."""
    have = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.build_opener().open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 416:
            raise
        # nothing lies beyond what we have: it is complete, or of another version of the file
        if error.headers.get("Content-Range") == f"bytes */{have}":
            return
        part.unlink()
        return _transfer(url, part, timeout, report)
    with response:
        # only now, so that an address out of reach is told once
        report(f"downloading {url} to {part.with_suffix('').absolute()}")
        resumed = response.status == 206
        if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            raise _Cut("the server resumes at the wrong place")
        length = response.headers.get("Content-Length")
        start = have if resumed else 0
        total = start + int(length) if length else None
        _write(response, part, "ab" if resumed else "wb", total, report)
    if total is not None and _size(part) != total:
        raise _Cut(f"{_size(part)} of {total} bytes came")


def _write(response: http.client.HTTPResponse, part: Path, mode: str, total: int | None, report: Report) -> None:
    said = time.monotonic()
    try:
        stream = part.open(mode)
    except OSError as error:
        raise _unwritable(part, error) from None
    with stream:
        while chunk := response.read(_CHUNK):
            try:
                stream.write(chunk)
                stream.flush()
            except OSError as error:
                raise _unwritable(part, error) from None
            if time.monotonic() - said > _REPORT_SECONDS:
                said = time.monotonic()
                of = f" of {total / 1e6:,.0f}" if total else ""
                report(f"{part.name}: {stream.tell() / 1e6:,.0f}{of} MB")


def make_folder(folder: Path) -> None:
    """The folder with its parents; UserError where that is not allowed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from None


def _unwritable(path: Path, error: OSError) -> UserError:
    return UserError(f"cannot write {path.absolute()}: {error.strerror or error}")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _reason(error: Exception) -> str:
    return str(error.reason if type(error) is urllib.error.URLError else error) or type(error).__name__


def extract(archive: Path, members: Mapping[str, Path]) -> None:
    """Stream regular files {name in the archive: path here} out of a .tar or .tgz; all else in it is ignored.

    Each file appears under its final name only when it is complete. UserError for a damaged archive or one
    that lacks a member.
    """
    missing = dict(members)
    try:
        with tarfile.open(archive, "r|*") as stream:
            for member in stream:
                path = missing.pop(member.name.removeprefix("./"), None) if member.isreg() else None
                content = stream.extractfile(member) if path else None
                if path and content:
                    save(content, path)
                if not missing:
                    return
    except (tarfile.TarError, EOFError, zlib.error, LZMAError) as error:
        raise UserError(f"{archive} is damaged ({error}): delete it and run again") from None
    except OSError as error:
        raise UserError(f"extracting {archive} failed: {error.strerror or error}") from None
    if missing:
        raise UserError(f"{archive} has no file {', '.join(missing)}: delete it and run again")
