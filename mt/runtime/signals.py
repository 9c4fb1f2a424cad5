"""The signals that end a run, and the one that a process gets when its launcher is gone. Imports no torch."""

import ctypes
import signal
import sys
from contextlib import suppress

# What a terminal, a scheduler and SLURM's early warning send
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def end_with_parent() -> None:
    """Have the kernel send SIGTERM when the parent ends, whatever ended it: no process outlives its launcher.

    A no-op where the kernel is not Linux.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
