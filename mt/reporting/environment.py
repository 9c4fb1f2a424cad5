"""What a run was made with: the facts one needs to explain a number later."""

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from mt.runtime.cores import usable_cores

_PACKAGES = ("mt", "torch", "numpy", "sentencepiece", "sacrebleu", "hydra-core")


def environment() -> dict[str, Any]:
    """The git commit (None outside a checkout), versions, CPU, usable cores and platform, in plain types."""
    versions = {name: _version(name) for name in _PACKAGES}
    return {
        "git_commit": _git_commit(Path(__file__).resolve().parents[2]),
        "versions": {"python": platform.python_version(), **versions},
        "cpu": _cpu_model(),
        "cores": usable_cores(),
        "platform": platform.platform(),
    }


def describe_environment() -> str:
    """The same in one line."""
    facts = environment()
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return f"commit {facts['git_commit']}; {versions}; {facts['cpu']}, {facts['cores']} cores; {facts['platform']}"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _git_commit(root: Path) -> str | None:
    """The commit of the checkout at `root`, with "-dirty" behind it where tracked files were changed."""
    if not (root / ".git").exists():  # installed in a venv that lies in somebody's checkout: not our commit
        return None
    # In a git hook GIT_DIR names another repository; without optional locks git writes nothing.
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
