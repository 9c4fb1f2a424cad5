"""Composes a command's overrides into a validated configuration. Only this module decides which setting wins.

Precedence, highest first: keys on the command line; settings inherited from a checkpoint named on the command line,
unless their group is chosen there, too; groups on the command line; the experiment; the defaults of the schema.
"""

import functools
import hashlib
import os
import re
from collections.abc import Set
from dataclasses import fields, replace
from enum import Enum
from operator import attrgetter
from typing import Any

from mt.config.overrides import LANGUAGES, Command, config_folder, parse_override
from mt.config.rules import HARMLESS, validate
from mt.config.schema import Corpus, TrainConfig, walk
from mt.config.stored import read_config
from mt.errors import UserError, first_line
from mt.run_folder import CONFIG, RunFolder, find_checkpoint

DEFAULT_EXPERIMENT = "multi30k"
_USER_FILES = ("data.train", "data.dev", "data.test", "tokenizer.model", "train.init_from")
_LONGEST_NAME = 100


def compose(command: Command, overrides: list[str], varied: Set[str] = frozenset()) -> Any:
    """The validated configuration of a command line. `varied`: the keys that a sweep varies. Raises UserError."""
    given = dict(parse_override(command, override) for override in overrides)
    groups = {key: given[key] for key in given if key in command.groups}
    experiment = groups.pop("experiment", groups.get("data", DEFAULT_EXPERIMENT))
    config = _from_hydra(command, experiment, tuple(groups.items()))
    for key in given.keys() - set(command.groups):
        config = _with(config, key, given[key])
    config = _with_absolute_files(config)
    if isinstance(config, TrainConfig):
        config = _with(config, "run.name", _run_name(config, experiment, given, command.groups, varied))
    for name, value in _inherited(command, config, given.keys()).items():
        config = _with(config, name, value)
    validate(config, given.keys())
    return config


def _inherited(command: Command, config: Any, names: Set[str]) -> dict[str, Any]:
    """Settings inherited from the checkpoint named on the command line, except those set there explicitly."""
    rule = command.inherited
    path = attrgetter(rule.key)(config) if rule else None
    if rule is None or not path:
        return {}
    stored = None
    if isinstance(config, TrainConfig):
        for key in sorted(names):
            if key.partition(".")[0] == "tokenizer" and key != "tokenizer.sampling":
                raise UserError(f"{rule.key} has its own tokenizers: leave out {key}")
        run = RunFolder(config.run.folder)
        if run.index.exists() and run.config.exists():
            stored = read_config(run.config)  # the run has inherited them, and the checkpoint may be gone
    stored = stored or read_config(find_checkpoint(path, rule.key, exports=True) / CONFIG)
    return {
        name: value
        for name, _, value in walk(stored)
        if name.partition(".")[0] in rule.sections
        and name not in rule.but
        and not {name, name.partition(".")[0]} & names
    }


@functools.lru_cache(maxsize=256)  # it takes a quarter of a second, and a sweep composes every configuration twice
def _from_hydra(command: Command, experiment: str, groups: tuple[tuple[str, str], ...]) -> Any:
    """The configuration of an experiment (if the command has experiments) with the chosen group options."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.config_store import ConfigStore
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    # Hydra finds the typed defaults by name
    for name, kind in {"train": TrainConfig, command.name: command.config}.items():  # prepare.yaml loads train's
        node = OmegaConf.structured(kind)
        # Frozen dataclasses are read-only nodes, which Hydra could not merge into
        for each in (node, *(node[section] for section in node if OmegaConf.is_config(node[section]))):
            OmegaConf.set_readonly(each, None)
        ConfigStore.instance().store(name=f"{name}_config", node=node)
    folder = config_folder()
    own_defaults = (folder / f"{command.name}.yaml").is_file()
    name, add = (command.name, "") if own_defaults else (f"{command.name}_config", "+")
    lines = [f"experiment={experiment}"] if "experiment" in command.groups else []
    try:
        with initialize_config_dir(str(folder), version_base="1.3"):
            config = hydra_compose(name, lines + [f"{add}{group}={option}" for group, option in groups])
        for group, option in groups:  # merged again, because Hydra merges the experiment last
            path = folder / group / f"{option}.yaml"
            values = OmegaConf.load(path)
            everywhere = "@package _global_" in path.read_text(encoding="utf-8")
            config.merge_with(values if everywhere else {group: values})
        composed = OmegaConf.to_object(config)
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(f"{folder}: {getattr(error, 'full_key', None) or 'a value'}: {first_line(error)}") from error
    return command.config(**{item.name: getattr(composed, item.name) for item in fields(command.config)})


def _with(section: Any, name: str, value: Any) -> Any:
    """A copy of nested frozen dataclasses with one dotted name changed."""
    first, _, rest = name.partition(".")
    return replace(section, **{first: _with(getattr(section, first), rest, value) if rest else value})


def _with_absolute_files(config: Any) -> Any:
    """Make the paths of user files absolute, so that the configuration means the same in any folder."""

    def absolute(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: absolute(paths) for key, paths in value.items()}
        return [absolute(path) for path in value] if isinstance(value, list) else os.path.abspath(value)

    for name, _, value in list(walk(config)):
        if name in _USER_FILES and value:
            config = _with(config, name, absolute(value))
    if hasattr(config, "data") and config.data.corpus is not Corpus.files:
        config = _with(config, "data.raw_dir", os.path.abspath(config.data.raw_folder))
    return config


def _run_name(
    config: TrainConfig, experiment: str, given: dict[str, Any], groups: tuple[str, ...], varied: Set[str]
) -> str:
    """The run's name: experiment, languages and changed settings, with a digest at its end if ambiguous."""
    name = config.run.name
    if name is not None and (name.startswith(".") or ".." in name or re.search(r"[/\\\0-\37]", name)):
        raise UserError(f"run.name={name!r} must be a folder name without / and ..; run.root sets its location")
    shown = set(varied)
    if name is None:
        shown |= given.keys() - HARMLESS
        shown -= {"experiment", *LANGUAGES} | ({"data"} if given.get("data") == experiment else set())
    base = name or f"{experiment}-{_plain(config.data.source)}-{_plain(config.data.target)}"
    values = {key: given[key] if key in groups else attrgetter(key)(config) for key in sorted(shown)}
    exact = base[_LONGEST_NAME - 9 :] + "".join(f"-{key}={value}" for key, value in values.items())
    plain = base + "".join(f"-{key}.{_plain(_in_words(value))}" for key, value in values.items())
    clear = all(not isinstance(value, list | dict | str) or value == _plain(str(value)) for value in values.values())
    if clear and len(plain) <= _LONGEST_NAME:
        return plain
    return f"{plain[: _LONGEST_NAME - 9]}-{hashlib.sha256(exact.encode(errors='surrogateescape')).hexdigest()[:8]}"


def _in_words(value: Any) -> str:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, dict):
        return _in_words([*value.values()])
    if isinstance(value, list):
        return _in_words(value[0]) if value else "none"
    if isinstance(value, float):
        return f"{value:.12g}"
    return os.path.basename(value) if isinstance(value, str) else str(value).lower()


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", ".", text).strip(".")
