"""Atomic files and folders, locks, and the leftovers of dead processes."""

import errno
import io
import os
import socket
import subprocess
import sys
import threading

import pytest

import mt.files
from mt.errors import Corrupt, UserError
from mt.files import Unfinished, atomic_folder, atomic_write, locked, restore_replaced, sha256_of, verify_hash


class Killed(BaseException):
    """Simulates a kill: `except Exception` does not catch it, but `finally` still runs."""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def make(path, name, resume=False, error=None):
    """Write a folder that holds a file of this name, then raise `error` if given. Returns the temporary folder."""
    with atomic_folder(path, resume) as unfinished:
        (unfinished / name).write_text(name)
        if error is not None:
            raise error
    return unfinished


def test_a_second_writer_waits_for_the_end_of_the_first(tmp_path):
    held, done = threading.Event(), []

    def first():
        with locked(tmp_path / ".lock"):
            held.set()
            while not said:
                pass
            done.append("first")

    said: list[str] = []
    thread = threading.Thread(target=first, daemon=True)
    thread.start()
    held.wait()
    with locked(tmp_path / ".lock", patience=20, report=said.append):
        assert done == ["first"]
    thread.join()
    assert said == [
        f"process {os.getpid()} on {socket.gethostname()} is writing to {tmp_path}:"
        " waiting up to 20 seconds for it to end"
    ]


def test_a_writer_that_stays_is_named_when_patience_ends(tmp_path):
    me = f"process {os.getpid()} on {socket.gethostname()} is writing"
    with locked(tmp_path / ".lock"), pytest.raises(UserError, match=me), locked(tmp_path / ".lock", patience=0):
        pass


def test_a_killed_writer_holds_nothing(tmp_path):
    code = "import os, sys; from mt.files import locked; from pathlib import Path\n"
    code += "with locked(Path(sys.argv[1]) / '.lock'): os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == -9
    with locked(tmp_path / ".lock", patience=0):
        pass


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write to"), locked(tmp_path / "file" / "run" / ".lock"):
        pass


def left_behind(tmp_path):
    """Make temporary folders of two dead processes, one with this process's id, and of others. Returns their names."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    host = socket.gethostname()
    dead = [f".a.{host}.{ended.pid}", f".a.{host}.{os.getpid()}"]
    others = [f".a.{host}.{os.getppid()}", f".a.elsewhere.{ended.pid}", ".a.txt"]
    for name in (*dead, *others):
        (tmp_path / name).mkdir()
        (tmp_path / name / "content").write_text(name)
    return dead, sorted(others)


def test_what_dead_processes_left_is_removed_and_what_living_ones_write_stays(tmp_path):
    dead, others = left_behind(tmp_path)
    with atomic_folder(tmp_path / "a") as unfinished:
        assert unfinished == tmp_path / dead[1]
        assert names(unfinished) == []
        assert names(tmp_path) == sorted([*others, dead[1]])
    assert names(tmp_path) == [*others, "a"]


@pytest.mark.parametrize("own", [True, False])
def test_resuming_takes_over_what_a_dead_process_left(tmp_path, own):
    dead, others = left_behind(tmp_path)
    if not own:  # usually the ids differ
        (tmp_path / dead[1] / "content").unlink()
        (tmp_path / dead[1]).rmdir()
    with atomic_folder(tmp_path / "a", resume=True) as unfinished:
        assert unfinished == tmp_path / dead[1]
        assert (unfinished / "content").read_text() == dead[own]
        assert names(tmp_path) == sorted([*others, dead[1]])
    assert names(tmp_path) == [*others, "a"]


@pytest.mark.parametrize("content", ["new Ü\n\r\n", io.BytesIO(b"new \xff\r\n")])
def test_a_file_is_replaced_by_text_or_bytes_as_they_are(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    atomic_write(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content.getvalue())
    assert names(tmp_path) == ["file"]


class Broken(io.BytesIO):
    def read(self, size=-1):
        if self.tell():
            raise OSError(errno.EIO, "Input/output error")
        return super().read(3)


@pytest.mark.parametrize("fault", ["reading", "encoding", "syncing", "renaming", "killed"])
def test_a_file_keeps_its_old_content_if_writing_fails(tmp_path, monkeypatch, fault):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(*arguments):
        raise Killed if fault == "killed" else OSError(errno.ENOSPC, "No space left on device")

    content = {"reading": Broken(b"new content"), "encoding": "\udc80"}.get(fault, "new")
    if fault in ("syncing", "killed"):
        monkeypatch.setattr(os, "fsync", full)
    if fault == "renaming":
        monkeypatch.setattr(os, "replace", full)
    with pytest.raises((OSError, UnicodeEncodeError, Killed)):
        atomic_write(path, content)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file"]


def test_a_folder_gets_its_name_at_the_end_and_its_parents_are_made(tmp_path):
    path = tmp_path / "a" / "b"
    with atomic_folder(path) as unfinished:
        (unfinished / "file").write_text("new")
        assert not path.exists() and unfinished.parent == path.parent and unfinished.name.startswith(".")
    assert names(path.parent) == ["b"] and (path / "file").read_text() == "new"


def test_everything_is_on_disk_before_a_folder_gets_its_name(tmp_path, monkeypatch):
    synced = []
    real = os.fsync

    def fsync(descriptor):
        synced.append((os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")), (tmp_path / "a").exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with atomic_folder(tmp_path / "a") as unfinished:
        for name in ("one", "two"):
            (unfinished / name).write_text("")
    assert sorted(synced[:2]) == [("one", False), ("two", False)]
    assert synced[2:] == [(unfinished.name, False), (tmp_path.name, True)]


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("resume", [True, False])
def test_nothing_is_left_of_a_folder_whose_block_raises(tmp_path, old, resume):
    path = tmp_path / "a"
    if old:
        make(path, "old")
    with pytest.raises(ZeroDivisionError):
        make(path, "new", resume, ZeroDivisionError())
    assert names(tmp_path) == (["a"] if old else [])
    assert not old or names(path) == ["old"]


def test_an_unfinished_folder_is_kept_and_the_next_call_resumes_it(tmp_path):
    path = tmp_path / "a"
    with pytest.raises(Unfinished, match="stopped"):
        make(path, "first", resume=True, error=Unfinished("stopped"))
    (kept,) = tmp_path.iterdir()
    assert names(kept) == ["first"]
    assert make(path, "second", resume=True) == kept
    assert names(tmp_path) == ["a"] and names(path) == ["first", "second"]


def test_without_resume_an_unfinished_folder_begins_anew(tmp_path):
    path = tmp_path / "a"
    with pytest.raises(Unfinished):
        make(path, "first", resume=True, error=Unfinished("stopped"))
    make(path, "second")
    assert names(tmp_path) == ["a"] and names(path) == ["second"]


def test_a_folder_of_that_name_is_replaced(tmp_path):
    path = tmp_path / "a"
    make(path, "old")
    with atomic_folder(path) as unfinished:
        (unfinished / "new").write_text("")
        assert names(path) == ["old"]  # until the block ends
    assert names(tmp_path) == ["a"] and names(path) == ["new"]


@pytest.mark.parametrize("resume", [True, False])
def test_a_folder_that_appeared_meanwhile_stays_with_resume_and_is_replaced_without(tmp_path, resume):
    path = tmp_path / "a"
    with atomic_folder(path, resume) as unfinished:
        (unfinished / "mine").write_text("")
        path.mkdir()  # as another process would
        (path / "theirs").write_text("")
    assert names(tmp_path) == ["a"]
    assert names(path) == (["theirs"] if resume else ["mine"])


def test_a_folder_that_appears_at_the_last_moment_stays_with_resume(tmp_path, monkeypatch):
    path = tmp_path / "a"
    real = mt.files._sync

    def appear(each):
        real(each)
        if not path.exists():  # as if another process had finished first
            path.mkdir()
            (path / "theirs").write_text("")

    monkeypatch.setattr(mt.files, "_sync", appear)
    make(path, "mine", resume=True)
    assert names(tmp_path) == ["a"] and names(path) == ["theirs"]


@pytest.mark.parametrize("moment", [1, 2])
def test_a_folder_that_a_killed_process_was_replacing_is_put_back(tmp_path, monkeypatch, moment):
    path = tmp_path / "a"
    make(path, "old")
    renames = iter((1, 2))
    real = type(path).rename

    def rename(self, target):
        if next(renames) == moment:
            raise Killed
        return real(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(type(path), "rename", rename)
        with pytest.raises(Killed):
            make(path, "new")
    assert path.exists() == (moment == 1)
    restore_replaced(tmp_path)
    assert names(path) == ["old"]
    make(path, "new")
    assert names(tmp_path) == ["a"] and names(path) == ["new"]


def test_a_kill_before_the_replaced_folder_was_removed_does_not_hinder_the_next_one(tmp_path, monkeypatch):
    path = tmp_path / "a"
    make(path, "first")

    def killed(*arguments, **options):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", killed)
        with pytest.raises(Killed):
            make(path, "second")
    assert names(path) == ["second"]
    make(path, "third")
    assert names(tmp_path) == ["a"] and names(path) == ["third"]


def test_a_folder_that_was_replaced_already_is_not_put_back(tmp_path):
    for name in ("a", ".a.replaced", ".b.replaced"):
        make(tmp_path / name, name)
    restore_replaced(tmp_path)
    assert names(tmp_path / "a") == ["a"] and names(tmp_path / "b") == [".b.replaced"]


def test_a_file_is_verified_by_its_hash(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-4's example
    assert sha256_of(path) == expected
    verify_hash(path, expected)
    for other in (None, "", expected.upper()):
        with pytest.raises(Corrupt, match="file is corrupt"):
            verify_hash(path, other)
    path.write_bytes(b"abd")
    with pytest.raises(Corrupt, match="file is corrupt"):
        verify_hash(path, expected)
    path.unlink()
    with pytest.raises(Corrupt, match="file cannot be read: No such file"):
        verify_hash(path, expected)
