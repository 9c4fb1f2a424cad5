"""Process utilities that do not need torch: cores, messages, signals, and the parent process."""

import ctypes
import os
import signal
import sys
from contextlib import suppress

# From a terminal, a scheduler, and SLURM's advance warning (SIGUSR1)
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
LAUNCHER = "MT_LAUNCHER"  # environment variable: pid of the mt that launched this worker process
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def usable_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def say(line: str) -> None:
    """Print a line on stderr, on rank 0 only."""
    if os.environ.get("RANK", "0") == "0":
        print(line, file=sys.stderr, flush=True)


def end_with_parent() -> None:
    """On Linux, have the kernel send SIGTERM to this process when its parent ends, so that it is not left behind."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


def launcher_has_ended() -> bool:
    """Whether the mt process that launched this worker process has ended."""
    return os.environ.get(LAUNCHER, str(os.getppid())) != str(os.getppid())
