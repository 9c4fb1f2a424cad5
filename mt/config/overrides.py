"""Commands and the parser of their overrides, which reports each mistake in one line before Hydra runs."""

import difflib
import functools
import itertools
import os
import re
import types
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, get_args, get_origin

from mt.config.rules import limits_in_words
from mt.config.schema import walk
from mt.errors import UserError

LANGUAGES = ("data.source", "data.target")


@dataclass(frozen=True)
class Inherited:
    """Which settings a command inherits from the checkpoint given by one of its keys."""

    key: str
    sections: tuple[str, ...]
    but: tuple[str, ...] = ()  # keys of these sections that are not inherited


@dataclass(frozen=True)
class Command:
    """A command: its name, its configuration, its help, and the function that runs it."""

    name: str
    help: str
    config: type[Any]  # a dataclass, as in mt.config.schema
    run: Callable[[list[str]], int]  # overrides to exit code
    examples: tuple[tuple[str, str], ...]  # (purpose, command line)
    groups: tuple[str, ...] = ()  # groups of configs/ that the command line may set
    inherited: Inherited | None = None
    sweep: Callable[[list[str]], int] | None = None  # like `run`, for overrides with several values

    @cached_property
    def keys(self) -> dict[str, Field[Any]]:
        """All keys by dotted name: those without a section, then the others in the order of the dataclasses."""
        return {name: item for name, item, _ in sorted(walk(self.config()), key=lambda each: "." in each[0])}


def parse_override(command: Command, override: str) -> tuple[str, Any]:
    """Parse an override into its key or group and a typed value. Raises UserError if the override is invalid."""
    key, text = _split(command, override)
    if key in command.groups:
        name, known = _unquoted(text), options(key)
        if name not in known:
            several = "; use -m to train one after another" if "," in text else ""
            raise UserError(f"{key}={text} must be one of {', '.join(known)}{several}{nearest(name, known)}")
        return key, name
    read = _literal if _is_literal(command, key) else _parsed
    return key, read(key, command.keys[key], text)


def expand_sweep(command: Command, overrides: list[str]) -> tuple[list[list[str]], frozenset[str]]:
    """The command lines of a sweep (all combinations, the last key varies fastest), and the keys that vary."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    choices: list[list[str]] = []
    for override in overrides:
        key, text = _split(command, override)
        if _is_literal(command, key):
            choices.append([override])
            continue
        try:
            parsed = OverridesParser.create().parse_override(override)
            swept = parsed.is_sweep_override()
            choices.append([f"{key}={value}" for value in parsed.sweep_string_iterator()] if swept else [override])
        except HydraException as error:
            raise UserError(f"{override}: not a list of values: write {key}=a,b or {key}=range(1,4)") from error
        if not choices[-1]:
            raise UserError(f"{key}={text} has no values")
    varied = {options[0].partition("=")[0] for options in choices if len(options) > 1}
    return [list(line) for line in itertools.product(*choices)], frozenset(varied)


def allowed(item: Field[Any]) -> str:
    """The values that a key takes, in words, such as "a whole number, at least 1"."""
    kind, optional = _kind(item)
    if isinstance(kind, type) and issubclass(kind, Enum):
        words = "one of " + ", ".join(member.name for member in kind)
    else:
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        names |= {list: "a list [a,b]", Any: "a list [a,b] or {name: [a,b]}"}
        words = names[kind]
    return ", ".join(part for part in (words, limits_in_words(item), "or null" if optional else "") if part)


def default_text(item: Field[Any]) -> str:
    """The default of a key, as typed on the command line."""
    value = item.default if item.default_factory is MISSING else item.default_factory()
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, float):
        return f"{value:g}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def options(group: str) -> dict[str, str]:
    """The options of a group, each with the comment that describes it."""
    found = {}
    for path in sorted((config_folder() / group).glob("*.yaml")):
        comments = [line[2:] for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# ")]
        found[path.stem] = next((line for line in comments if not line.startswith("@package")), "")
    return found


@functools.cache
def config_folder() -> Path:
    """The folder of the YAML files: inside the package in a wheel, next to it in a checkout."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "configs", package.parent / "configs"):
        if (folder / "train.yaml").is_file():
            return folder
    raise UserError(f"the folder configs/ is missing: looked in {package} and {package.parent}")


def nearest(name: str, names: Iterable[str]) -> str:
    """`; did you mean NAME?` for the most similar name, or "". For example, `lr` matches `optim.peak_lr`."""
    known = list(names)
    last = name.rpartition(".")[2]
    ends = {full.rpartition(".")[2]: full for full in known}
    guesses = [
        *(full for end, full in ends.items() if last == end),
        *difflib.get_close_matches(name, known, n=1),
        *(full for end, full in ends.items() if last in end.split("_")),
        *(ends[end] for end in difflib.get_close_matches(last, ends, n=1)),
    ]
    return f"; did you mean {guesses[0]}?" if guesses else ""


def _split(command: Command, override: str) -> tuple[str, str]:
    """Key and text of `key=text`; the key is one of the command's keys or groups."""
    names = [*command.groups, *command.keys]
    key, equals, text = override.partition("=")
    if override.startswith(("+", "~")):
        raise UserError(f"{override}: keys cannot be added or removed: write {key.lstrip('+~')}=VALUE, or leave it out")
    if not equals:
        hint = f": write {override}=VALUE" if override in names else nearest(override, names)
        raise UserError(f"{override!r} is not of the form key=value{hint}")
    if key.partition(".")[0].partition("/")[0] == "hydra":
        raise UserError(f"{key}={text}: Hydra's own settings have no effect; runs are written to run.root/run.name")
    if key not in names:
        hint = nearest(key.partition("@")[0], names) or f"; `mt {command.name} --help` lists all keys"
        raise UserError(f"{key}={text}: mt {command.name} has no key {key!r}{hint}")
    return key, text


def _parsed(key: str, item: Field[Any], text: str) -> Any:
    """Parse a number, boolean, choice or language code with Hydra's grammar."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        override = OverridesParser.create().parse_override(f"{key}={text}")
    except HydraException as error:
        hint = f"text with special characters needs two pairs of quotes: '{key}=\"{text}\"'"
        raise UserError(f"{key}={text} cannot be read: it must be {allowed(item)} ({hint})") from error
    if override.is_sweep_override():
        raise UserError(f"{key}={text} has several values: it must be {allowed(item)}; use mt train -m to try each")
    value: Any = override.value()
    kind, optional = _kind(item)
    if value is None and optional:
        return None
    if issubclass(kind, Enum):
        names = [member.name for member in kind]
        if value in names:
            return kind[value]
        raise UserError(f"{key}={text} must be {allowed(item)}{nearest(str(value), names)}")
    # An int is also a float, but a bool is neither
    fits = isinstance(value, int | float if kind is float else kind) and isinstance(value, bool) == (kind is bool)
    if not fits or value == "":
        raise UserError(f"{key}={text} must be {allowed(item)}")
    return kind(value)


def _kind(item: Field[Any]) -> tuple[Any, bool]:
    """The type of a key without `| None` and type arguments, and whether None is allowed."""
    kinds = get_args(item.type) if isinstance(item.type, types.UnionType) else (item.type,)
    kind = next(kind for kind in kinds if kind is not type(None))
    return get_origin(kind) or kind, type(None) in kinds


def _is_literal(command: Command, key: str) -> bool:
    """Whether a key holds paths or other free text, in which any character may occur."""
    item = command.keys.get(key)
    return item is not None and _kind(item)[0] in (str, list, Any) and key not in LANGUAGES


def _literal(key: str, item: Field[Any], text: str) -> Any:
    kind, optional = _kind(item)
    if text == "null" and optional:
        return None
    if not text:
        raise UserError(f"{key}= is empty: it must be {allowed(item)}")
    if kind is str:
        return _path(key, text)
    if text.startswith("{") and text.endswith("}") and kind is Any:
        entries = [entry.partition(":") for entry in _items(text)]
        if not all(colon and name.strip() and value.strip() for name, colon, value in entries):
            raise UserError(f"{key}={text}: write {{name: [a,b], other: [c,d]}}")
        return {_unquoted(name.strip()): _list(key, value.strip()) for name, _, value in entries}
    return _list(key, text)


def _list(key: str, text: str) -> list[str]:
    if text.startswith("[") and text.endswith("]"):
        return [_path(key, item) for item in _items(text)]
    if "," in text and _unquoted(text) == text:
        raise UserError(f"{key}={text}: a list needs brackets: '{key}=[{text}]'")
    return [_path(key, text)]


def _items(text: str) -> list[str]:
    """Split the content of the outer brackets at commas, except inside quotes or inner brackets."""
    found = re.findall(r"""((?:"[^"]*"|'[^']*'|\[[^\]]*\]|[^,])+)(?:,|$)""", text[1:-1])
    return [item.strip() for item in found if item.strip()]


def _path(key: str, text: str) -> str:
    plain = _unquoted(text)
    return os.path.expanduser(plain) if plain.startswith("~/") and key != "tokenizer.symbols" else plain


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
