"""Describes the machine and its software, to explain results later."""

import os
import platform
import subprocess
from contextlib import suppress
from pathlib import Path

from mt.runtime.process import usable_cores

_PACKAGES = ("mt", "torch", "numpy", "sentencepiece", "sacrebleu", "hydra-core")


def describe_environment() -> str:
    """The git commit (None outside a checkout), versions, processor, usable cores and platform, in one line."""
    names = [("python", platform.python_version()), *((name, package_version(name)) for name in _PACKAGES)]
    versions = ", ".join(f"{name} {version}" for name, version in names)
    commit = _git_commit(Path(__file__).resolve().parents[2])
    return f"commit {commit}; {versions}; {_cpu_model()}, {usable_cores()} cores; {platform.platform()}"


def package_version(package: str) -> str:
    """The version of an installed package, or "unknown"."""
    from importlib import metadata  # slow

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _git_commit(root: Path) -> str | None:
    """The commit of the checkout at `root`, followed by "-dirty" if tracked files were changed."""
    if not (root / ".git").exists():  # mt may be installed inside another project's checkout
        return None
    # In a git hook, GIT_DIR names another repository; without optional locks, git writes nothing
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=10)
        return done.stdout.decode(errors="replace").strip() or None
    return None


def _cpu_model() -> str:
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n")
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or platform.machine() or "unknown"
