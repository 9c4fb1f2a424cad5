"""Stops a run on request: a signal only sets a flag, and the run ends after it has saved."""

import os
import signal
import time
from types import FrameType
from typing import Any

from mt.runtime import distributed
from mt.runtime.process import STOP_SIGNALS


class Interrupted(Exception):
    """Work was abandoned because the run was asked to stop."""


class StopRequest:
    """In its `with` block, STOP_SIGNALS only request a stop; the third SIGINT raises KeyboardInterrupt.

    A signal to one process counts for all. `number` is the signal that all processes have agreed on in `agree`;
    `wanted()` is true as soon as this process knows of a signal, even before the next `agree`.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.heard: int | None = None  # the signal that this process knows of
        self._interrupts = 0
        self._announced = False
        self._previous: dict[int, Any] = {}
        self._ticked = time.monotonic()

    def __enter__(self) -> "StopRequest":
        distributed.clear_stop()
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, error: object, *details: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self.heard is not None and self.number is None and error is None:
            os.kill(os.getpid(), self.heard)  # arrived after the last `agree`: pass it to the previous handler

    def wanted(self) -> bool:
        """Whether any process was asked to stop, as far as this one knows; costs almost nothing."""
        if self.heard is not None and not self._announced:
            distributed.announce_stop(self.heard)
            self._announced = True
        elif self.heard is None and (announced := distributed.announced_stop()):
            self.heard = announced
        return self.heard is not None

    def raise_if_wanted(self) -> None:
        """Raise Interrupted if `wanted`; other processes may not know yet."""
        if self.wanted():
            raise Interrupted

    def agree(self, seconds: float = 0.0) -> float:
        """Agree on `number` with all processes, and return `seconds` plus the longest time since the last call."""
        now = time.monotonic()
        number, longest = distributed.all_reduce([self.heard or 0, seconds + now - self._ticked], distributed.MAX)
        self.number, self._ticked = int(number) or None, now
        return longest

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._interrupts += number == signal.SIGINT
        if self._interrupts == 3:
            raise KeyboardInterrupt
        self.heard = number
