"""Leaving a run in order: the first SIGINT or SIGTERM only asks, the loop saves and goes."""

import signal
from types import FrameType, TracebackType
from typing import Any


class StopRequest:
    """Inside its `with` block SIGINT or SIGTERM sets `number`; a second SIGINT interrupts at once."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.number == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = number
