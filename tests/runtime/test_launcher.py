"""The number of processes that are started, and the launcher's exit code."""

import signal

import pytest
import torch

from mt.config.schema import Device
from mt.errors import UserError
from mt.runtime.launcher import _exit_code, processes_to_start


@pytest.mark.parametrize(
    ("codes", "code", "said"),
    [
        ({0: 138, 1: 138}, 138, ""),  # all were asked to stop, and saved
        ({1: 2, 0: -signal.SIGTERM}, 2, ""),  # one reported an error
        ({1: -signal.SIGKILL, 0: 143}, 137, "error: process 1 was ended by signal 9: if memory ran out, lower"),
        ({1: -signal.SIGSEGV, 0: -signal.SIGTERM}, 139, "error: process 1 was ended by signal 11"),
        ({0: -signal.SIGTERM}, 143, ""),
    ],
)
def test_the_first_end_counts(codes, code, said, capsys):
    assert _exit_code(codes) == code
    told = capsys.readouterr().err
    assert told.startswith(said) and bool(told) == bool(said)


def test_as_many_processes_as_asked_for_or_as_there_are_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert (processes_to_start("auto", Device.auto), processes_to_start("3", Device.auto)) == (1, 3)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert (processes_to_start("auto", Device.auto), processes_to_start("2", Device.auto)) == (4, 2)
    assert (processes_to_start("auto", Device.cpu), processes_to_start("6", Device.cpu)) == (1, 6)
    with pytest.raises(UserError, match="4 GPUs"):
        processes_to_start("6", Device.auto)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert processes_to_start("2", Device.auto) == 1  # torchrun has started them
