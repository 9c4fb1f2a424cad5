"""Leaving a run in order: a signal only asks, whoever works saves and goes."""

import os
import signal
from types import FrameType, TracebackType
from typing import Any

from mt.runtime import distributed
from mt.runtime.signals import STOP_SIGNALS


class Interrupted(Exception):
    """Work was given up half-way, in all processes alike, because the run was asked to stop."""


class StopRequest:
    """Inside its `with` block STOP_SIGNALS only ask; a third SIGINT interrupts at once.

    A signal that reaches one of several processes counts for all. `number` is the signal by which all of them have
    agreed to stop, so that it is the same everywhere; between two agreements `wanted` tells what is known by now.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.heard: int | None = None  # what reached this process, whatever the others know
        self._interrupts = 0
        self._announced = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        distributed.forget_stop()
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup does with SIGHUP
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self.heard is not None and self.number is None and kind is None:
            os.kill(os.getpid(), self.heard)  # it came after the last agreement: let it do what it does elsewhere

    def wanted(self) -> bool:
        """Whether this or another process was asked to stop, as far as is known here; costs next to nothing."""
        if self.heard is not None and not self._announced:
            distributed.announce_stop(self.heard)
            self._announced = True
        elif self.heard is None and (announced := distributed.announced_stop()):
            self.heard = announced
        return self.heard is not None

    def give_up_if_wanted(self) -> None:
        """Raises Interrupted where this or another process was asked to stop; others may not have heard yet."""
        if self.wanted():
            raise Interrupted

    def agree(self, seconds: float) -> float:
        """Settle `number` among all processes, who all call this; gives the largest of their `seconds`."""
        number, most = distributed.highest([self.heard or 0, seconds])
        self.number = int(number) or None
        return most

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._interrupts += number == signal.SIGINT
        if self._interrupts == 3:
            raise KeyboardInterrupt
        self.heard = number
