"""The facts about a machine and its software that explain a number later."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

from mt.runtime.process import usable_cores

_PACKAGES = ("mt", "torch", "numpy", "sentencepiece", "sacrebleu", "hydra-core")


def describe_environment() -> str:
    """The git commit (None outside a checkout), versions, processor, usable cores and platform, in one line."""
    names = [("python", platform.python_version()), *((name, _version(name)) for name in _PACKAGES)]
    versions = ", ".join(f"{name} {version}" for name, version in names)
    commit = _git_commit(Path(__file__).resolve().parents[2])
    return f"commit {commit}; {versions}; {_cpu_model()}, {usable_cores()} cores; {platform.platform()}"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _git_commit(root: Path) -> str | None:
    """The commit of the checkout at `root`, followed by "-dirty" if tracked files were changed."""
    if not (root / ".git").exists():  # installed in a venv inside somebody's checkout: not our commit
        return None
    # In a git hook GIT_DIR names another repository; without optional locks git writes nothing
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(
            command,
            env={**clean, "GIT_OPTIONAL_LOCKS": "0"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine() or "unknown"
