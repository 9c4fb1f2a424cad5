"""From a command and its overrides to one checked job: Hydra merges typed defaults, groups and recipe."""

import functools
import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from mt.config import Corpus, Job, PrepareJob, TrainJob
from mt.errors import UserError
from mt.jobs import HARMLESS, raw_dir, validate
from mt.overrides import GROUPS, JOBS, LANGUAGES, checked, config_folder

DEFAULT_RECIPE = "multi30k"
_USER_FILES = ("data.train", "data.dev", "data.test", "tokenizer.model")
_LONGEST_NAME = 100


def compose(
    command: str,
    overrides: list[str],
    stored: Mapping[str, Any] | None = None,
    named: frozenset[str] = frozenset(),
) -> Job:
    """The checked job of a command line; raises UserError for every mistake in it.

    `stored` holds values of a checkpoint by key. They count more than defaults and recipe, and less than what
    `overrides` say of the key or of its group. Keys in `named`, those that a sweep varies, are in the run's name in
    any case.
    """
    given = [checked(command, override) for override in overrides]
    choices = {item.key: item.value for item in given if item.key in GROUPS[command]}
    recipe = choices.get("experiment", choices.get("data", DEFAULT_RECIPE))
    lines = [f"experiment={recipe}"] if "experiment" in GROUPS[command] else []
    choices.pop("experiment", None)
    lines += [f"{group}={option}" for group, option in choices.items()]
    # What the user chose by name counts more than the recipe, what they set by key more than both
    for group, option in choices.items():
        lines += _said(group, option)
    lines += [f"{item.key}={item.text}" for item in given if not item.literal and item.key not in GROUPS[command]]
    job = _from_hydra(command, tuple(lines))
    said = {item.key for item in given}
    _refuse_other_tokenizers(stored or {}, said)
    for name, value in (stored or {}).items():
        if not {name, name.partition(".")[0]} & said:
            job = _with(job, name, value)
    for item in given:
        if item.literal:
            job = _with(job, item.key, item.value)
    if isinstance(job, TrainJob | PrepareJob):
        job = _with_absolute_files(job)
    if isinstance(job, TrainJob):
        job = _with(job, "run.name", _run_name(job, recipe, {item.key: item.value for item in given}, named))
    validate(job, said)
    return job


def _refuse_other_tokenizers(stored: Mapping[str, Any], said: set[str]) -> None:
    if "tokenizer.kind" not in stored:
        return
    for key in sorted(said):
        if key.partition(".")[0] == "tokenizer" and key != "tokenizer.sampling":
            raise UserError(f"train.init_from brings its own tokenizers: leave out {key}")


def recipe_is_chosen(overrides: list[str]) -> bool:
    """Whether the command line itself says what to train on."""
    return any(override.partition("=")[0] in ("experiment", "data") for override in overrides)


def to_yaml(job: Job) -> str:
    """A job as YAML, every key in it."""
    from omegaconf import OmegaConf

    return str(OmegaConf.to_yaml(OmegaConf.structured(job)))


@functools.cache
def _register() -> None:
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    for command, job in JOBS.items():
        node = OmegaConf.structured(job)
        # Frozen dataclasses are read-only nodes, which Hydra could not merge into
        OmegaConf.set_readonly(node, None)
        for name in node:
            if OmegaConf.is_config(node[name]):
                OmegaConf.set_readonly(node[name], None)
        ConfigStore.instance().store(name=f"{command}_job", node=node)


@functools.lru_cache(maxsize=256)  # a quarter of a second each, and a sweep composes every job twice
def _from_hydra(command: str, lines: tuple[str, ...]) -> Job:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    _register()
    try:
        with initialize_config_dir(str(config_folder()), version_base="1.3"):
            job = OmegaConf.to_object(hydra_compose(command, list(lines)))
    except (HydraException, OmegaConfBaseException) as error:
        where = f"{getattr(error, 'full_key', None) or 'a value'}: "
        raise UserError(f"{config_folder()}: {where}{str(error).splitlines()[0]}") from error
    if command == "prepare":
        assert isinstance(job, TrainJob)
        return PrepareJob(seed=job.seed, data=job.data, tokenizer=job.tokenizer)
    assert isinstance(job, JOBS[command])
    return job


def _said(group: str, option: str) -> list[str]:
    """Overrides that repeat a group file's own values."""
    from omegaconf import OmegaConf

    path = config_folder() / group / f"{option}.yaml"
    prefix = "" if "@package _global_" in path.read_text(encoding="utf-8") else f"{group}."

    def lines(values: Any, prefix: str) -> list[str]:
        if isinstance(values, dict):
            return [line for name, value in values.items() for line in lines(value, f"{prefix}.{name}")]
        return [f"{prefix[1:]}={'null' if values is None else values}"]

    return [f"{prefix}{line}" for line in lines(OmegaConf.to_container(OmegaConf.load(path)), "")]


def _with(section: Any, name: str, value: Any) -> Any:
    """A copy of nested frozen dataclasses with one dotted name changed."""
    first, _, rest = name.partition(".")
    return replace(section, **{first: _with(getattr(section, first), rest, value) if rest else value})


def _get(section: Any, name: str) -> Any:
    return functools.reduce(getattr, name.split("."), section)


def _with_absolute_files(job: Any) -> Any:
    """The text's files by absolute path, so that the job means the same from any folder."""
    for name in (*_USER_FILES, "train.init_from") if isinstance(job, TrainJob) else _USER_FILES:
        value = _get(job, name)
        if isinstance(value, dict):
            job = _with(job, name, {key: [os.path.abspath(path) for path in paths] for key, paths in value.items()})
        elif isinstance(value, list):
            job = _with(job, name, [os.path.abspath(path) for path in value])
        elif value:
            job = _with(job, name, os.path.abspath(value))
    if job.data.corpus is not Corpus.files:
        job = _with(job, "data.raw_dir", os.path.abspath(raw_dir(job.data)))
    return job


def _run_name(job: TrainJob, recipe: str, given: dict[str, Any], named: frozenset[str]) -> str:
    """The run's folder: recipe, direction and what the command line changed, in [A-Za-z0-9._-] only.

    A digest ends it where plain characters or the length cannot tell two commands apart.
    """
    name = job.run.name
    if name is not None and (name.startswith(".") or ".." in name or re.search(r"[/\\\0-\37]", name)):
        raise UserError(f"run.name={name!r} must be a folder's name without / and ..; its place is run.root")
    shown = set(named)
    if name is None:
        shown |= given.keys() - HARMLESS
        shown -= {"experiment", *LANGUAGES} | ({"data"} if given.get("data") == recipe else set())
    base = name or f"{recipe}-{_plain(job.data.source)}-{_plain(job.data.target)}"
    values = {key: given[key] if key in GROUPS["train"] else _get(job, key) for key in sorted(shown)}
    exact = "".join(f"-{key}={value}" for key, value in values.items())
    plain = base + "".join(f"-{key}.{_plain(_in_words(value))}" for key, value in values.items())
    clear = all(not isinstance(value, list | dict | str) or value == _plain(str(value)) for value in values.values())
    if clear and len(plain) <= _LONGEST_NAME:
        return plain
    digest = hashlib.sha256(exact.encode(errors="surrogateescape")).hexdigest()[:8]
    return f"{plain[: _LONGEST_NAME - 9]}-{digest}"


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
    return re.sub(r"[^A-Za-z0-9._-]+", ".", text).replace("..", ".").strip(".")
