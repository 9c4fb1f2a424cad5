"""A signal only requests a stop, and all processes agree on it."""

import os
import signal
from types import SimpleNamespace

import pytest

from mt.runtime import stop as stop_module
from mt.runtime.process import STOP_SIGNALS
from mt.runtime.stop import Interrupted, StopRequest


def test_signals_ask_and_a_third_ctrl_c_interrupts():
    handlers = [signal.getsignal(number) for number in STOP_SIGNALS]
    for number in STOP_SIGNALS:
        with StopRequest() as stop:
            assert not stop.wanted()
            os.kill(os.getpid(), number)
            assert stop.wanted() and stop.number is None  # until all processes agree
            stop.agree()
            assert stop.number == number

    def interrupt(times):
        with StopRequest():
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupt(3)
    with pytest.raises(KeyboardInterrupt):
        interrupt(1)  # no `agree` follows, so the previous handler gets it
    assert handlers == [signal.getsignal(number) for number in STOP_SIGNALS]


def test_a_hangup_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.wanted()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_work_is_interrupted_once_a_signal_was_heard():
    with StopRequest() as stop:
        stop.raise_if_wanted()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Interrupted):
            stop.raise_if_wanted()
        stop.agree()
        assert stop.number == signal.SIGTERM


def test_agreeing_returns_the_given_seconds_and_those_since_the_last_time(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(stop_module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    with StopRequest() as stop:
        clock[0] = 103.0
        assert stop.agree(2.5) == 5.5
        assert stop.agree() == 0
        clock[0] = 104.0
        assert stop.agree() == 1
        assert stop.number is None
