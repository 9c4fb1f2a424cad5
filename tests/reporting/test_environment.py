"""The environment is described in one line, even if packages or git are missing."""

import re
import subprocess
import sys
from pathlib import Path

from mt.reporting import environment as environment_module
from mt.reporting.environment import describe_environment


def test_the_environment_is_one_line_and_survives_a_missing_git(monkeypatch) -> None:
    packages = "".join(rf", {name} \d\S*" for name in ("torch", "numpy", "sentencepiece", "sacrebleu", "hydra-core"))
    python = re.escape(".".join(map(str, sys.version_info[:3])))
    versions = rf"python {python}, mt \S+{packages}"  # mt itself need not be installed
    line = rf"commit (None|[0-9a-f]{{40}}(-dirty)?); {versions}; [^;]+, [1-9]\d* cores; \S+"
    assert re.fullmatch(line, describe_environment())
    monkeypatch.setenv("PATH", "/nonexistent")
    assert describe_environment().startswith("commit None; ")
    assert environment_module.package_version("no-such-package-of-ours") == "unknown"


def test_git_commit_is_that_of_the_checkout_only(tmp_path: Path, monkeypatch) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    assert environment_module._git_commit(tmp_path) is None  # no commit yet
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "-q", "-m", "first")
    monkeypatch.setenv("GIT_DIR", "/nonexistent")  # as inside another repository's hook
    head = (tmp_path / ".git/refs/heads").joinpath(*(p.name for p in (tmp_path / ".git/refs/heads").iterdir()))
    commit = head.read_text().strip()
    assert environment_module._git_commit(tmp_path) == commit
    (tmp_path / "file").write_text("two")
    assert environment_module._git_commit(tmp_path) == commit + "-dirty"
    (tmp_path / "venv").mkdir()
    assert environment_module._git_commit(tmp_path / "venv") is None
