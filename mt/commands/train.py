"""`mt train`: train a model, or resume a run, then score it on its test sets."""

import os
from collections.abc import Set

from mt.config.compose import compose
from mt.config.overrides import Command, Inherited, expand_sweep
from mt.config.schema import Corpus, TrainConfig
from mt.errors import DataUnavailable, UserError
from mt.runtime.process import LAUNCHER, say

FALLBACK = "experiment=captions"


def run(overrides: list[str], varied: Set[str] = frozenset()) -> int:
    """Train in as many processes as `train.devices` says; fall back to the captions if Multi30k is unavailable."""
    from mt.runtime.launcher import run_in_processes

    config: TrainConfig = compose(COMMAND, overrides, varied)
    arguments = [COMMAND.name, *overrides, f"run.name='{config.run.name}'"]
    reason = ""
    try:
        code = run_in_processes(arguments, config.train.devices, config.train.device)
        if code is None:
            from mt.training.run import train

            code = train(config)
    except DataUnavailable as error:
        if not _may_fall_back(overrides, config):
            raise
        code, reason = DataUnavailable.exit_code, f" {error}"
    if code != DataUnavailable.exit_code or not _may_fall_back(overrides, config):
        return code
    notice = (
        "Multi30k is not here and cannot be downloaded, so this run trains on generated captions instead"
        f" ({FALLBACK}): its scores say nothing about Multi30k.{reason}"
    )
    say(notice)
    code = run([*overrides, FALLBACK], varied)
    say(notice)
    return code


def sweep(overrides: list[str]) -> int:
    """Check all combinations of values, then train one run for each, in order, until the first failure."""
    lines, varied = expand_sweep(COMMAND, overrides)
    names = [compose(COMMAND, line, varied).run.name for line in lines]
    for number, (line, name) in enumerate(zip(lines, names, strict=True), start=1):
        place = f"run {number} of {len(lines)}, {name}"
        say(place)
        try:
            code = run(line, varied)
        except UserError as error:
            raise type(error)(f"{place}: {error}") from error
        except BaseException:
            say(f"stopped in {place}")
            raise
        if code:
            say(f"stopped in {place}: exit code {code}")
            return code
    return 0


def _may_fall_back(overrides: list[str], config: TrainConfig) -> bool:
    """Whether the user chose no corpus. Worker processes leave the decision to the mt that started them."""
    chosen = {override.partition("=")[0] for override in overrides} & {"experiment", "data", "data.raw_dir"}
    multi30k = config.data.corpus is Corpus.multi30k and {config.data.source, config.data.target} == {"en", "de"}
    return multi30k and not chosen and LAUNCHER not in os.environ


COMMAND = Command(
    name="train",
    help="train a model, then score it on the test sets",
    config=TrainConfig,
    run=run,
    sweep=sweep,
    groups=("experiment", "data", "tokenizer", "model", "optim", "decode"),
    inherited=Inherited(
        "train.init_from",
        sections=("model", "tokenizer"),
        but=("model.dropout", "model.init", "tokenizer.model", "tokenizer.sampling"),
    ),
    examples=(
        ("the default experiment: Multi30k, English to German", "mt train"),
        ("another direction", "mt train data.source=de data.target=en"),
        ("another model and schedule", "mt train model=small optim.warmup_steps=1000"),
        ("your own text, one sentence per line", "mt train data=files 'data.train=[train.en,train.de]'"),
        ("two runs, one after the other", "mt train -m optim.warmup_steps=1000,2000"),
        ("show the configuration and stop", "mt train --cfg job"),
    ),
)
