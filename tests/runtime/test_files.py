"""Whole files, one writer, and what dead processes left."""

import os
import socket
import subprocess
import sys
import threading

import pytest

from mt.errors import UserError
from mt.runtime.files import only_writer, temporary_beside


def test_a_second_writer_waits_for_the_end_of_the_first(tmp_path):
    held, done = threading.Event(), []

    def first():
        with only_writer(tmp_path):
            held.set()
            while not said:
                pass
            done.append("first")

    said: list[str] = []
    thread = threading.Thread(target=first, daemon=True)
    thread.start()
    held.wait()
    with only_writer(tmp_path, patience=20, report=said.append):
        assert done == ["first"]
    thread.join()
    assert said == [
        f"process {os.getpid()} on {socket.gethostname()} is writing {tmp_path}: waiting up to 20 seconds for its end"
    ]


def test_a_killed_writer_holds_nothing(tmp_path):
    code = "import os, sys; from mt.runtime.files import only_writer; from pathlib import Path\n"
    code += "with only_writer(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9
    with only_writer(tmp_path, patience=0):
        pass


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write to"), only_writer(tmp_path / "file" / "run"):
        pass


def test_what_dead_processes_left_goes_and_what_living_ones_write_stays(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host = socket.gethostname()
    dead = [f".a.{host}.{ended.pid}", f".a.{host}.{os.getpid()}"]
    for name in (*dead, f".a.{host}.{os.getppid()}", f".a.elsewhere.{ended.pid}", ".a.txt"):
        (tmp_path / name).mkdir()
    assert temporary_beside(tmp_path / "a") == tmp_path / f".a.{host}.{os.getpid()}"
    assert {path.name for path in tmp_path.iterdir()} == {
        f".a.{host}.{os.getppid()}",
        f".a.elsewhere.{ended.pid}",
        ".a.txt",
    }
