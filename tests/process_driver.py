"""The program of each process of a test: trains the configurations of a JSON file in order, in one process group.

An entry is {"config": plain configuration} with these optional keys. "code" is the expected exit code. "signal": [rank,
update, number] sends a signal to a rank at an update, while it is in the activity "during" (default "update"). "nan":
[rank, update] makes a gradient not finite. With "wrong": true, each process divides by the tokens of its own batch, a
classic mistake. After the arguments `fail RANK UPDATE`, the rest is a command line of mt.
"""

import json
import math
import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import torch

from mt import cli
from mt.config.schema import TrainConfig
from mt.config.stored import from_plain
from mt.decoding.translator import Translator
from mt.runtime import distributed
from mt.runtime.process import end_with_parent
from mt.training import loop, saving, step
from mt.training.run import train
from mt.training.state import TrainerState

PLACES = {"update": (TrainerState, "advance"), "decoding": (Translator, "_search"), "saving": (saving, "pack")}
now = {"update": 0, "target_tokens": 0}  # the last finished update, and the tokens of the current one


def counting(advance):
    def wrapped(state, *arguments):
        advance(state, *arguments)
        now["update"] = state.update

    return wrapped


def signalling(function, rank, update, number):
    def wrapped(*arguments, **options):
        found = function(*arguments, **options)
        if distributed.rank() == rank and now["update"] == update:
            os.kill(os.getpid(), number)
        return found

    return wrapped


def noting_tokens(train_step):
    def wrapped(learner, update, *rest):
        now["target_tokens"] = update.target_tokens
        return train_step(learner, update, *rest)

    return wrapped


def normalized_by_itself(loss):
    def wrapped(states, weight, targets, smoothing, non_padding):
        found = loss(states, weight, targets, smoothing, non_padding)
        factor = now["target_tokens"] / (distributed.world_size() * len(non_padding))
        return replace(found, smoothed=found.smoothed * factor)

    return wrapped


def not_a_number(loss, rank, update):
    def wrapped(*arguments):
        found = loss(*arguments)
        broken = distributed.rank() == rank and now["update"] + 1 == update
        return replace(found, smoothed=found.smoothed * math.nan) if broken else found

    return wrapped


def main(path):
    for entry in json.loads(Path(path).read_text(encoding="utf-8")):
        torch.manual_seed(99)  # the random state of earlier runs must not matter
        now["update"] = 0
        changes = [(TrainerState, "advance", counting)]
        if "signal" in entry:
            changes.append(
                (*PLACES[entry.get("during", "update")], lambda real, e=entry: signalling(real, *e["signal"]))
            )
        if entry.get("wrong"):
            changes += [(loop, "train_step", noting_tokens), (step, "label_smoothed_loss", normalized_by_itself)]
        if "nan" in entry:
            changes.append((step, "label_smoothed_loss", lambda real, e=entry: not_a_number(real, *e["nan"])))
        with ExitStack() as stack:
            for owner, name, wrap in changes:
                stack.enter_context(patch.object(owner, name, wrap(getattr(owner, name))))
            code = train(from_plain(TrainConfig, entry["config"]))
        assert code == entry.get("code", 0), f"exit code {code}"
    distributed.leave()


def fail(rank, number_of_update, arguments):
    """Run `mt ARGUMENTS` with an error on one rank."""

    def broken(learner, *rest):
        if distributed.rank() == rank and now["update"] == number_of_update:
            raise RuntimeError("broken on purpose")
        return real(learner, *rest)

    real = loop.train_step
    with (
        patch.object(loop, "train_step", broken),
        patch.object(TrainerState, "advance", counting(TrainerState.advance)),
    ):
        sys.exit(cli.main(arguments))


if __name__ == "__main__":
    end_with_parent()
    if sys.argv[1] == "fail":
        fail(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
    main(sys.argv[1])
