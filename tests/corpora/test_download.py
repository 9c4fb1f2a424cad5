"""Downloads from a faulty local server, and extraction from malicious archives."""

import io
import re
import tarfile
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mt.corpora import download
from mt.corpora.download import check_recorded, extract, fetch
from mt.errors import DataUnavailable, UserError
from mt.files import sha256_of

CONTENT = bytes(range(256)) * 4000
SHA256 = sha256(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves CONTENT. `cuts` are the numbers of bytes after which the next responses end early."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.ranges = True
        self.says_length = True
        self.cuts: list[int] = []
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/file.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append(wanted)
        if self.path == "/absent":
            return self.send_error(404)
        start, total = 0, len(server.content)
        if wanted and server.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206 if start < total else 416)
            span = f"{start}-{total - 1}" if start < total else "*"
            self.send_header("Content-Range", f"bytes {span}/{total}")
        else:
            self.send_response(200)
        body = server.content[start:]
        if server.says_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.cuts.pop(0)] if server.cuts else body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "folder" / "file.bin"


def part(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True)
    part = path.with_name("file.bin.part")
    part.write_bytes(content)
    return part


def test_fetch_checks_and_renames(server: Server, path: Path) -> None:
    said: list[str] = []
    fetch(server.url, path, SHA256, report=said.append)
    assert path.read_bytes() == CONTENT
    assert [file.name for file in path.parent.iterdir()] == ["file.bin"]
    assert server.url in said[0] and str(path) in said[0]


def test_a_cut_transfer_resumes_where_it_ended(server: Server, path: Path) -> None:
    server.cuts = [300_000, 1_000]
    fetch(server.url, path, SHA256)
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=300000-", "bytes=301000-"]


def test_a_killed_download_resumes_in_the_next_call(server: Server, path: Path) -> None:
    part(path, CONTENT[:500_000])
    fetch(server.url, path)
    assert path.read_bytes() == CONTENT
    assert server.asked == ["bytes=500000-"]


def test_a_server_without_ranges_sends_it_all_again(server: Server, path: Path) -> None:
    server.ranges, server.cuts = False, [300_000]
    fetch(server.url, path, SHA256)
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=300000-"]


def test_a_server_that_stops_for_good_leaves_only_the_part(server: Server, path: Path) -> None:
    server.cuts = [300_000, 0]
    with pytest.raises(DataUnavailable, match="300000 of 1024000 bytes"):
        fetch(server.url, path)
    assert [file.name for file in path.parent.iterdir()] == ["file.bin.part"]
    fetch(server.url, path, SHA256)
    assert path.read_bytes() == CONTENT


def test_a_complete_part_is_taken_and_an_overlong_one_replaced(server: Server, path: Path) -> None:
    part(path, CONTENT)
    fetch(server.url, path, SHA256)
    assert path.read_bytes() == CONTENT and server.asked == ["bytes=1024000-"]
    path.rename(path.with_name("file.bin.part"))
    server.content = CONTENT[:1000]
    fetch(server.url, path)
    assert path.read_bytes() == CONTENT[:1000]


def test_without_a_length_the_checksum_decides(server: Server, path: Path) -> None:
    server.says_length = False
    fetch(server.url, path, SHA256)
    server.cuts = [1000]
    with pytest.raises(UserError, match="a different file"):
        fetch(server.url, path.with_name("other"), SHA256)


def test_a_wrong_checksum_names_both_and_leaves_nothing(server: Server, path: Path) -> None:
    server.content = b"another file"
    with pytest.raises(UserError) as caught:
        fetch(server.url, path, SHA256)
    message = str(caught.value)
    assert all(word in message for word in (server.url, str(path), SHA256, sha256(b"another file").hexdigest()))
    assert not list(path.parent.iterdir())


def test_unreachable_and_absent_addresses_answer_in_seconds(
    server: Server, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = time.monotonic()
    with pytest.raises(DataUnavailable) as caught:
        fetch("http://127.0.0.1:9/file.bin", path)
    assert "http://127.0.0.1:9/file.bin" in str(caught.value) and str(path.parent) in str(caught.value)
    with pytest.raises(DataUnavailable, match="HTTP Error 404: Not Found"):
        fetch(server.url.replace("file.bin", "absent"), path)
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    with pytest.raises(DataUnavailable, match="refused"):
        fetch("https://raw.githubusercontent.com/x", path)
    assert time.monotonic() - start < 3
    assert not path.exists()


def test_a_silent_server_times_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/file.bin"
        with pytest.raises(DataUnavailable, match="timed out"):
            fetch(url, path, timeout=0.2)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write") as caught:
        fetch("http://127.0.0.1:9/", tmp_path / "file" / "below" / "x")
    assert not isinstance(caught.value, DataUnavailable)


def test_progress_is_told_with_its_size(server: Server, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_REPORT_SECONDS", -1.0)
    said: list[str] = []
    fetch(server.url, path, report=said.append)
    assert re.fullmatch(r"file\.bin\.part: \d+ of 1 MB", said[-1])


def test_checksums_are_recorded_once_and_verified_ever_after(tmp_path: Path) -> None:
    said: list[str] = []
    for name in ("a", "b c"):
        (tmp_path / name).write_text(name)
        check_recorded(tmp_path / name, said.append)
        check_recorded(tmp_path / name, said.append)
    assert said == []
    expected = [f"{sha256(name.encode()).hexdigest()}  {name}" for name in ("a", "b c")]
    assert (tmp_path / "SHA256SUMS").read_text().splitlines() == expected
    (tmp_path / "a").write_text("changed")
    with pytest.raises(UserError, match=str(tmp_path / "a")) as caught:
        check_recorded(tmp_path / "a", said.append)
    assert sha256_of(tmp_path / "a") in str(caught.value) and expected[0][:64] in str(caught.value)


def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, content: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(download, "atomic_write", refuse)
    (tmp_path / "a").write_text("a")
    said: list[str] = []
    check_recorded(tmp_path / "a", said.append)
    assert len(said) == 1 and "Permission denied" in said[0]


def tar(path: Path, members: list[tuple[str, bytes, bytes]], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, kind, content in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = len(content)
            else:
                info.linkname = content.decode()
            archive.addfile(info, io.BytesIO(content) if kind == tarfile.REGTYPE else None)
    return path


REGULAR = tarfile.REGTYPE


def test_only_the_named_regular_files_come_out(tmp_path: Path) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    archive = tar(
        tmp_path / "a.tgz",
        [
            ("../evil", REGULAR, b"x"),
            (str(tmp_path / "evil"), REGULAR, b"x"),
            ("training/b.en", tarfile.SYMTYPE, b"/etc/passwd"),
            ("training/._b.en", REGULAR, b"\x00"),
            ("./training/b.en", REGULAR, b"text\n"),
            ("training/b.fr", REGULAR, b"other\n"),
        ],
    )
    extract(archive, {"training/b.en": folder / "b.en"})
    assert (folder / "b.en").read_bytes() == b"text\n" and not (folder / "b.en").is_symlink()
    assert sorted(file.name for file in tmp_path.rglob("*")) == ["a.tgz", "b.en", "raw"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE])
def test_a_link_in_a_files_place_is_a_missing_file(tmp_path: Path, kind: bytes) -> None:
    archive = tar(tmp_path / "a.tgz", [("b.en", kind, b"../c")])
    with pytest.raises(UserError, match=r"has no file b\.en"):
        extract(archive, {"b.en": tmp_path / "b.en"})
    assert [file.name for file in tmp_path.iterdir()] == ["a.tgz"]


def test_a_cut_archive_leaves_no_file_under_its_final_name(tmp_path: Path) -> None:
    import random

    content = random.Random(1).randbytes(200_000)
    archive = tar(tmp_path / "a.tgz", [("b.en", REGULAR, content)])
    archive.write_bytes(archive.read_bytes()[:100_000])
    for broken in (archive, tmp_path / "no.tgz"):
        if broken is not archive:
            broken.write_bytes(b"<html>not found</html>")
        with pytest.raises(UserError, match=str(broken)):
            extract(broken, {"b.en": tmp_path / "b.en"})
        assert not (tmp_path / "b.en").exists()
