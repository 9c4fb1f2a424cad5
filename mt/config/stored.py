"""Converts a `TrainConfig` to plain types or YAML and back. Interpolations in its strings are kept as they are."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import yaml

from mt.config.rules import check_limits
from mt.config.schema import TrainConfig
from mt.errors import UserError, first_line

# Keys of older versions; they are ignored
RETIRED = {"decode.engine"}


def to_plain(config: Any) -> dict[str, Any]:
    """A configuration as nested dicts of plain types, which YAML and JSON can hold."""
    values = {item.name: getattr(config, item.name) for item in fields(config)}
    return {
        name: to_plain(value) if is_dataclass(value) else value.value if isinstance(value, Enum) else value
        for name, value in values.items()
    }


def from_plain(kind: type[Any], values: Any, prefix: str = "") -> Any:
    """The inverse of `to_plain`; missing keys get defaults. Raises UserError for unknown keys and wrong types."""
    types = get_type_hints(kind)
    if not isinstance(values, Mapping):
        raise UserError(f"{values!r} is not a section of a configuration")
    values = {name: value for name, value in values.items() if f"{prefix}{name}" not in RETIRED}
    if unknown := values.keys() - types.keys():
        raise UserError(f"unknown configuration key {min(unknown, key=str)!r}: was this written by a newer mt?")

    def convert(name: str, expected: Any, value: Any) -> Any:
        if is_dataclass(expected):
            assert isinstance(expected, type)
            return from_plain(expected, value, f"{prefix}{name}.")
        if isinstance(expected, type) and issubclass(expected, Enum):
            return expected(value)
        kinds = get_args(expected) if isinstance(expected, UnionType) else (expected,)
        if not any(_fits(each, value) for each in kinds):
            raise UserError(f"{name}={value!r} has the wrong type")
        return value

    try:
        return kind(**{name: convert(name, types[name], value) for name, value in values.items()})
    except ValueError as error:  # not a member of an enum
        raise UserError(str(error)) from error


def _fits(expected: Any, value: Any) -> bool:
    """Whether a plain value fits a type; an int is also a float, but a bool is not a number."""
    if expected is Any:
        return True
    if isinstance(value, bool):
        return expected is bool
    return isinstance(value, int | float if expected is float else get_origin(expected) or expected)


def read_config(path: Path) -> TrainConfig:
    """Read a config.yaml. Raises UserError if it is not a valid configuration."""
    try:
        config: TrainConfig = from_plain(TrainConfig, yaml.safe_load(path.read_text(encoding="utf-8")))
        check_limits(config)
        return config
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {first_line(error)}") from error


def to_yaml(config: Any) -> str:
    """A configuration as YAML, with every key."""
    return yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True)
