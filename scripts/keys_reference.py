"""Writes docs/keys.md, the reference of all groups and keys; `--check` only reports whether it is up to date.

python scripts/keys_reference.py [--check]
"""

import sys
from pathlib import Path

from mt.commands import COMMANDS
from mt.config.overrides import allowed, default_text, options

PAGE = Path(__file__).resolve().parent.parent / "docs" / "keys.md"
INTRODUCTION = """# All keys

This page is generated from the code by `python scripts/keys_reference.py`. `mt COMMAND --help` shows the same.

To set a key, write `key=value` after the command. [Settings](settings.md) explains which setting wins. Experiments and
groups change some of the defaults below; `--cfg job` shows the values of a command.
"""


def reference() -> str:
    """The page: the groups with their choices, then each key with the commands that have it."""
    groups = dict.fromkeys(group for command in COMMANDS.values() for group in command.groups)
    parts = [INTRODUCTION, "## Groups", "", "| group | choices | commands |", "|---|---|---|"]
    for group in groups:
        commands = ", ".join(name for name, command in COMMANDS.items() if group in command.groups)
        parts.append(f"| `{group}=` | {_choices(group)} | {commands} |")
    keys = dict.fromkeys(key for command in COMMANDS.values() for key in command.keys)
    sections = dict.fromkeys(key.rpartition(".")[0] for key in keys)
    for section in sorted(sections, key=bool):  # keys without a section first
        title = f"`{section}.*`" if section else "Keys without a section"
        head = "| key | default | meaning | allowed | commands |"
        parts += ["", f"## {title}", "", head, "|---|---|---|---|---|"]
        parts += [_row(key) for key in keys if key.rpartition(".")[0] == section]
    return "\n".join(parts) + "\n"


def _row(name: str) -> str:
    """A table row for one key. If the meaning depends on the command, each meaning names its commands."""
    fields = {command.name: command.keys[name] for command in COMMANDS.values() if name in command.keys}
    meanings = dict.fromkeys(item.metadata["help"] for item in fields.values())
    if len(meanings) == 1:
        meaning = next(iter(meanings))
    else:
        takers = {text: [one for one, item in fields.items() if item.metadata["help"] == text] for text in meanings}
        meaning = "; ".join(f"{', '.join(commands)}: {text}" for text, commands in takers.items())
    defaults = " or ".join(f"`{text}`" for text in dict.fromkeys(map(default_text, fields.values())) if text)
    values = " or ".join(dict.fromkeys(map(allowed, fields.values())))
    return "| " + " | ".join([f"`{name}`", defaults, _cell(meaning), _cell(values), ", ".join(fields)]) + " |"


def _choices(group: str) -> str:
    return "; ".join(f"`{name}` {_cell(text)}" for name, text in options(group).items())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def main() -> int:
    found = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(reference(), encoding="utf-8")
    elif found != reference():
        print(f"{PAGE} is out of date: run python scripts/keys_reference.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
