"""scripts/gpu_check.py, without a GPU."""

import importlib.util
import sys
from pathlib import Path

import torch

from mt.config.schema import Precision


def test_it_compares_the_numbers_and_does_not_stop_at_a_precision_that_is_refused(monkeypatch, capsys):
    path = Path(__file__).parents[2] / "scripts/gpu_check.py"
    spec = importlib.util.spec_from_file_location("gpu_check", path)
    check = sys.modules["gpu_check"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check)
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--device", "cpu", "--sizes", "tiny"])
    monkeypatch.setitem(check.PRECISIONS, "cpu", (Precision.tf32,))
    monkeypatch.setattr(check, "_several_processes", lambda device: True)
    threads = torch.get_num_threads()
    try:
        assert check.main() == 0
    finally:
        torch.set_num_threads(threads)
        del sys.modules["gpu_check"]
    out = capsys.readouterr().out
    assert "loss 0.0e+00" in out and "tiny, tf32: precision=tf32 needs a GPU" in out
    monkeypatch.setattr(check, "CLOSE", -1.0)
    assert check._same_numbers(check.Device.cpu) is False
