"""The signals that end a run, and the one that a process gets when its parent has ended. Imports no torch."""

import ctypes
import os
import signal
import sys
from contextlib import suppress

# What a terminal, a scheduler and SLURM's early warning send
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
LAUNCHER = "MT_LAUNCHER"  # environment variable: process number of the mt that started this one as one of several
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent() -> None:
    """Have the kernel send SIGTERM to this process when its parent ends, so that no process outlives its launcher.

    Does nothing if the kernel is not Linux.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))


def launcher_has_ended() -> bool:
    """Whether this process was started as one of several by an mt that is not its parent any more."""
    return os.environ.get(LAUNCHER, str(os.getppid())) != str(os.getppid())
