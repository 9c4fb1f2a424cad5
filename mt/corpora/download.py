"""Downloads, which are resumed after an interruption and get their final name only after a check."""

import http.client
import os
import tarfile
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Mapping
from lzma import LZMAError
from pathlib import Path

from mt.corpora.formats import Report
from mt.errors import DataUnavailable, UserError, explain_os_errors
from mt.files import atomic_write, sha256_of

SUMS = "SHA256SUMS"

_CHUNK = 1 << 20
_REPORT_SECONDS = 5.0


class _Interrupted(Exception):
    """The connection closed before the end of the file."""


def check_sha256(path: Path, expected: str) -> None:
    """Raise UserError if the SHA-256 of a file is not the expected one."""
    if (found := sha256_of(path)) != expected:
        raise UserError(f"{path} is damaged or another version (SHA-256 {found}, not {expected}): replace or delete it")


def recorded_sha256(path: Path) -> str | None:
    """The checksum of a file in the SHA256SUMS beside it, or None."""
    sums = path.with_name(SUMS)
    for line in sums.read_text("utf-8").splitlines() if sums.exists() else []:
        sha256, _, name = line.partition("  ")
        if name == path.name:
            return sha256
    return None


def check_recorded(path: Path, report: Report) -> None:
    """Check a file against the SHA256SUMS beside it; add the file if it is not listed."""
    if expected := recorded_sha256(path):
        check_sha256(path, expected)
        return
    sums = path.with_name(SUMS)
    before = sums.read_text("utf-8") if sums.exists() else ""
    try:
        atomic_write(sums, f"{before}{sha256_of(path)}  {path.name}\n")
    except OSError as error:  # the files may be in a shared folder that only others may write
        report(f"cannot record the SHA-256 of {path} in {sums}: {error.strerror or error}")


def fetch(
    url: str, path: Path, sha256: str | None = None, timeout: float = 5.0, report: Report = lambda line: None
) -> None:
    """Download url to path. An interrupted download is resumed from NAME.part, in this call and in the next one.

    `timeout` is the limit in seconds for connecting and for each read. Raises DataUnavailable.
    """
    part = path.with_name(path.name + ".part")
    with explain_os_errors(f"cannot write {path.parent}"):
        path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        before = _size(part)
        try:
            _transfer(url, part, timeout, report)
            break
        except (_Interrupted, OSError, http.client.HTTPException) as error:
            # Try again as long as bytes arrive
            if _size(part) <= before:
                reason = str(error.reason if type(error) is urllib.error.URLError else error) or type(error).__name__
                way_out = f"run again when it can be reached, or put the file into {path.parent.absolute()}"
                raise DataUnavailable(f"cannot download {url} ({reason}): {way_out}") from None
    if sha256 is not None and (found := sha256_of(part)) != sha256:
        part.unlink()
        way_out = f"run again, or put the right file at {path.absolute()}"
        raise DataUnavailable(f"{url} returned a different file (SHA-256 {found}, not {sha256}): {way_out}")
    os.replace(part, path)


def _transfer(url: str, part: Path, timeout: float, report: Report) -> None:
    """Append to `part` over one connection, or start over if the server does not support ranges."""
    have = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.build_opener().open(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 416:
            raise
        # The server has no more bytes: the file is complete, or a part of another version
        if error.headers.get("Content-Range") == f"bytes */{have}":
            return
        part.unlink()
        return _transfer(url, part, timeout, report)
    with response:
        # Only now, so that an unreachable address is reported once
        report(f"downloading {url} to {part.with_suffix('').absolute()}")
        resumed = response.status == 206
        if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            raise _Interrupted("the server resumes at the wrong offset")
        length = response.headers.get("Content-Length")
        start = have if resumed else 0
        total = start + int(length) if length else None
        _write(response, part, "ab" if resumed else "wb", total, report)
    if total is not None and _size(part) != total:
        raise _Interrupted(f"{_size(part)} of {total} bytes arrived")


def _write(response: http.client.HTTPResponse, part: Path, mode: str, total: int | None, report: Report) -> None:
    said = time.monotonic()
    with explain_os_errors(f"cannot write {part.absolute()}"):
        stream = part.open(mode)
    with stream:
        while chunk := response.read(_CHUNK):
            with explain_os_errors(f"cannot write {part.absolute()}"):
                stream.write(chunk)
                stream.flush()
            if time.monotonic() - said > _REPORT_SECONDS:
                said = time.monotonic()
                of = f" of {total / 1e6:,.0f}" if total else ""
                report(f"{part.name}: {stream.tell() / 1e6:,.0f}{of} MB")


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def extract(archive: Path, members: Mapping[str, Path]) -> None:
    """Extract members {name in the archive: path here} of a .tar or .tgz. Raises UserError if it is damaged."""
    missing = dict(members)
    try:
        with explain_os_errors(f"extracting {archive} failed"), tarfile.open(archive, "r|*") as stream:
            for member in stream:
                path = missing.pop(member.name.removeprefix("./"), None) if member.isreg() else None
                content = stream.extractfile(member) if path else None
                if path and content:
                    atomic_write(path, content)
                if not missing:
                    return
    except (tarfile.TarError, EOFError, zlib.error, LZMAError) as error:
        raise UserError(f"{archive} is damaged ({error}): delete it and run again") from None
    if missing:
        raise UserError(f"{archive} has no file {', '.join(missing)}: delete it and run again")
