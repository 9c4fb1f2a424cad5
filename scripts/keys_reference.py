"""Rewrites the reference of all keys in README.md; `--check` only says whether it is up to date.

python scripts/keys_reference.py [--check]
"""

import sys
from pathlib import Path

from mt.commands import COMMANDS
from mt.errors import UserError
from mt.overrides import GROUPS, allowed, default_text, keys, options

BEGIN, END = "<!-- keys:begin -->", "<!-- keys:end -->"
README = Path(__file__).resolve().parent.parent / "README.md"


def reference() -> str:
    """Markdown: the groups with their options, then a table of keys for each command."""
    described = [group for groups in GROUPS.values() for group in groups]
    parts = ["| group | choices |", "|---|---|"]
    parts += [f"| `{group}=` | {_choices(group)} |" for group in dict.fromkeys(described)]
    for command in COMMANDS.values():
        parts += [
            "",
            f"### mt {command.name}",
            "",
            "| key | default | meaning | allowed |",
            "|---|---|---|---|",
        ]
        for name, item in keys(command.name).items():
            row = (f"`{name}`", _code(default_text(item)), item.metadata["help"], allowed(item))
            parts.append("| " + " | ".join(_cell(text) for text in row) + " |")
    return "\n".join(parts)


def updated(readme: str) -> str:
    """The README's text with the reference between its two marker lines replaced."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UserError(f"README.md needs the lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{reference()}\n{END}{after}"


def _choices(group: str) -> str:
    return "; ".join(f"`{name}` {_cell(text)}" for name, text in options(group).items())


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def main() -> int:
    text = README.read_text(encoding="utf-8")
    wanted = updated(text)
    if "--check" not in sys.argv[1:]:
        README.write_text(wanted, encoding="utf-8")
    elif text != wanted:
        print("README.md: its keys are out of date: python scripts/keys_reference.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
