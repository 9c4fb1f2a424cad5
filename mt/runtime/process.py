"""This process without torch: its cores, its messages, the signals that it gets, and the process that started it."""

import ctypes
import os
import signal
import sys
from contextlib import suppress

# The signals of a terminal, of a scheduler, and of SLURM's early warning
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
LAUNCHER = "MT_LAUNCHER"  # environment variable: process number of the mt that started this one as one of several
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def usable_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def say(line: str) -> None:
    """Print a line on stderr; of several processes, only rank 0 does."""
    if os.environ.get("RANK", "0") == "0":
        print(line, file=sys.stderr, flush=True)


def end_with_parent() -> None:
    """On Linux, have the kernel send SIGTERM to this process when its parent ends, so that it never outlives it."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


def launcher_has_ended() -> bool:
    """Whether this process was started as one of several by an mt that is no longer its parent."""
    return os.environ.get(LAUNCHER, str(os.getppid())) != str(os.getppid())
