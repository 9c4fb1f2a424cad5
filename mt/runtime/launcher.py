"""Several processes for one command on this machine, started and watched by torch's own launcher."""

import logging
import os
import signal
import sys
import time
import uuid
from types import FrameType

from mt.config import Device
from mt.errors import UserError
from mt.runtime.signals import STOP_SIGNALS

_GRACE = 120  # seconds to save in, after which torch's launcher kills


def processes_to_start(devices: str, device: Device) -> int:
    """How many processes `devices` (a number, or auto) means; 1 where torch's launcher started this one already.

    auto is a process for each GPU, else one. Raises UserError for more processes than GPUs.
    """
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


def run_processes(arguments: list[str], count: int, environment: dict[str, str]) -> int:
    """Run `python -m mt ARGUMENTS` in `count` processes that know each other, and give one exit code for all.

    The first that fails ends the others. 128 + n: signal n, which is passed on to all of them, who get `_GRACE`
    seconds. What they print goes where this process prints.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # Its messages are about itself; ours name the process that failed
    logging.disable(logging.CRITICAL)
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(_GRACE))
    os.environ.update(environment)
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    before = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}  # nohup
    launch = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",  # a free port, held from here on: two launches never meet
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
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait_for_children() -> None:
    """Until all have ended. Two more signals have cut torch's own waiting short before; the next one leaves."""

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
    """Of the processes' codes in the order of their ends (minus n: ended by signal n) the first: the others follow."""
    rank, code = next(iter(codes.items()))
    if code > 0:
        return code
    if code != -signal.SIGTERM:
        why = "; was memory exhausted? lower train.batch_tokens" if code == -signal.SIGKILL else ""
        print(f"error: process {rank} was ended by signal {-code}{why}", file=sys.stderr, flush=True)
    return 128 - code
