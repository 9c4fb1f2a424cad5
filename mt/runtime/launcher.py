"""Runs a command in several processes on this machine with torch's own launcher."""

import logging
import os
import signal
import sys
import time
import uuid
from types import FrameType

from mt.config.schema import Device
from mt.errors import UserError
from mt.runtime.process import LAUNCHER, STOP_SIGNALS

_GRACE = 120  # seconds to save before torch's launcher kills


def run_in_processes(arguments: list[str], devices: str, device: Device) -> int | None:
    """Run `mt ARGUMENTS` in as many processes as `devices` asks for, and return one exit code for all.

    None means that the caller must do the work, because one process is enough or a launcher has started this one. If a
    process fails, the others are ended. 128 + n: all got signal n, with `_GRACE` seconds to save. Raises UserError.
    """
    count = processes_to_start(devices, device)
    if count == 1:
        return None
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # Silence torch's launcher: our own messages name the process that failed
    logging.disable(logging.CRITICAL)
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(_GRACE))
    os.environ[LAUNCHER] = str(os.getpid())
    before = {n: handler for n in STOP_SIGNALS if (handler := signal.getsignal(n)) is not signal.SIG_IGN}  # nohup
    launch = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",  # a free port, held from now on, so that two launchers never share one
        local_addr="127.0.0.1",
        max_restarts=0,
        logs_specs=DefaultLogsSpecs(log_dir=os.devnull),
        signals_to_handle=",".join(signal.Signals(number).name for number in before),
    )
    try:
        elastic_launch(launch, sys.executable)("-m", "mt", *arguments)
        return 0
    except SignalException as error:
        _wait_for_children()
        return 128 + int(error.sigval)
    except ChildFailedError as error:
        return _exit_code({rank: failure.exitcode for rank, failure in error.failures.items()})
    finally:
        logging.disable(logging.NOTSET)
        del os.environ[LAUNCHER]
        for number, handler in before.items():
            signal.signal(number, handler)


def processes_to_start(devices: str, device: Device) -> int:
    """The number of processes that `devices` (a number, or auto: one per GPU) asks for; 1 in a launched process."""
    if devices == "1":
        return 1
    import torch

    from mt.runtime import distributed

    if distributed.launched():
        return 1
    gpus = torch.cuda.device_count() if device is not Device.cpu else 0
    if devices == "auto":
        return max(1, gpus)
    if gpus and int(devices) > gpus:
        raise UserError(f"devices={devices}, but torch finds {gpus} GPUs here: use at most {gpus}, or auto")
    return int(devices)


def _wait_for_children() -> None:
    """Wait for all children, because torch's launcher stops waiting at a second signal. Another one ends this wait."""

    def leave(number: int, frame: FrameType | None) -> None:
        os._exit(128 + number)

    for number in STOP_SIGNALS:
        signal.signal(number, leave)
    end = time.monotonic() + _GRACE
    while time.monotonic() < end:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.05)
        except ChildProcessError:
            return


def _exit_code(codes: dict[int, int]) -> int:
    """The exit code of the process that failed first (-n: killed by signal n), which made the others end."""
    rank, code = next(iter(codes.items()))
    if code > 0:
        return code
    if code != -signal.SIGTERM:
        why = ": if memory ran out, lower train.batch_tokens or decode.batch_tokens" if code == -signal.SIGKILL else ""
        print(f"error: process {rank} was ended by signal {-code}{why}", file=sys.stderr, flush=True)
    return 128 - code
