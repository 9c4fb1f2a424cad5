"""What each process of a test does: trains the jobs of a JSON file one after another, in one process group.

An entry is {"job": plain job} and maybe "code", the exit code to expect; "signal": [rank, update, number], which that
rank gets while the run is at that update and "during" goes on; "nan": [rank, update], whose gradient is none there;
"wrong": true for the classic mistake, each process dividing by the tokens of its own batch. With `fail RANK UPDATE`
before it, the rest is a command line of mt.
"""

import json
import math
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import torch

from mt import cli
from mt.config import TrainJob
from mt.decoding.translator import Translator
from mt.jobs import from_plain
from mt.runtime import distributed
from mt.runtime.signals import end_with_parent
from mt.training import loop, update

PLACES = {
    "update": (loop, "train_update"),
    "decoding": (Translator, "_search"),
    "saving": (loop, "training_state"),
}
running = []  # the run of now


def remembered(start_run):
    def start(*arguments):
        running[:] = [start_run(*arguments)]
        return running[0]

    return start


def signalling(function, rank, number_of_update, signal_number):
    def wrapped(*arguments):
        found = function(*arguments)
        if distributed.rank() == rank and running[0].progress.update == number_of_update:
            os.kill(os.getpid(), signal_number)
        return found

    return wrapped


def normalized_by_itself(backward):
    def wrapped(run, epoch, rows, weight, tokens):
        return backward(run, epoch, rows, weight, distributed.world_size() * epoch.target_tokens(rows))

    return wrapped


def not_a_number(backward, rank, number_of_update):
    def wrapped(run, epoch, rows, weight, tokens):
        broken = distributed.rank() == rank and run.progress.update + 1 == number_of_update
        return backward(run, epoch, rows, math.nan if broken else weight, tokens)

    return wrapped


def main(path):
    for entry in json.loads(Path(path).read_text(encoding="utf-8")):
        torch.manual_seed(99)  # what is left over from before must not matter
        changes = [(loop, "start_run", remembered(loop.start_run))]
        if "signal" in entry:
            owner, name = PLACES[entry.get("during", "update")]
            changes.append((owner, name, signalling(getattr(owner, name), *entry["signal"])))
        if entry.get("wrong"):
            changes.append((update, "_backward", normalized_by_itself(update._backward)))
        if "nan" in entry:
            changes.append((update, "_backward", not_a_number(update._backward, *entry["nan"])))
        with ExitStack() as stack:
            for change in changes:
                stack.enter_context(patch.object(*change))
            code = loop.train(from_plain(TrainJob, entry["job"]))
        assert code == entry.get("code", 0), f"exit code {code}"
    distributed.leave()


def fail(rank, number_of_update, arguments):
    """`mt ARGUMENTS`, in which one rank has a fault."""

    def broken(run, *rest):
        if distributed.rank() == rank and run.progress.update == number_of_update:
            raise RuntimeError("broken on purpose")
        return real(run, *rest)

    real = loop.train_update
    with patch.object(loop, "train_update", broken):
        sys.exit(cli.main(arguments))


if __name__ == "__main__":
    end_with_parent()
    if sys.argv[1] == "fail":
        fail(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
    main(sys.argv[1])
