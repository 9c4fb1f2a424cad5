"""The cores and messages of this process, without torch."""

import os
import subprocess
import sys

import pytest

from mt.runtime.process import say, usable_cores


def test_cores_are_those_that_the_process_may_use(monkeypatch):
    assert usable_cores() == len(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 7})
    assert usable_cores() == 3


@pytest.mark.parametrize(("count", "expected"), [(6, 6), (None, 1)])
def test_a_system_without_affinity_gives_all_cores(monkeypatch, count, expected):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert usable_cores() == expected


def test_counting_cores_imports_no_torch():
    code = "import sys; from mt.runtime.process import usable_cores; usable_cores(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_only_rank_0_says_a_line_on_stderr(capsys, monkeypatch):
    say("a line")
    monkeypatch.setenv("RANK", "1")
    say("another")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "a line\n")
