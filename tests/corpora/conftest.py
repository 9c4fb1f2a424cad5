"""Working folders, and a local server that replaces the network."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from mt.corpora import multi30k, wmt14


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder and byte ranges. The first response for a name in `cuts` ends after that many bytes."""

    cuts: dict[str, int]

    def do_GET(self) -> None:
        name = self.path.rsplit("/", 1)[-1]
        file = Path(self.translate_path(self.path))
        if not file.is_file():
            return self.send_error(404)
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        body = file.read_bytes()
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.end_headers()
        self.wfile.write(body[start : self.cuts.pop(name, None)])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """Serves a folder in place of the real URLs, in a new current folder and without MT_DATA."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("MT_DATA", raising=False)
    root, here = tmp_path / "web", tmp_path / "here"
    root.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(Handler, "cuts", {}, raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(root)))
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(multi30k, "URL", url)
    monkeypatch.setattr(wmt14, "URL", url)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield SimpleNamespace(root=root, here=here, url=url, cuts=Handler.cuts)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MT_DATA", raising=False)
    return tmp_path
