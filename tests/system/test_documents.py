"""Links and commands in the documents work, and messages name no file of the repository."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from mt.cli import help_text, overview
from mt.commands import COMMANDS
from mt.config.overrides import expand_sweep, parse_override

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
MODULES = sorted((ROOT / "mt").rglob("*.py"))


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(document: Path) -> list[str]:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        linked = document.parent / path if path else document
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_works(document):
    assert broken_links(document) == []


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "a.md").write_text("# One two?\n[x](b.md) [y](#one-two) [z](#three) [w](a.md#one-two)\n")
    assert broken_links(tmp_path / "a.md") == ["b.md", "#three"]


def test_the_readme_is_short_and_links_to_every_page():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 150
    assert [page.name for page in (ROOT / "docs").glob("*.md") if f"(docs/{page.name})" not in readme] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_a_document_names_exist(document):
    text = document.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[\w.]+/)*[\w.]+\.(?:py|sh|yaml|txt|md))`", text))
    made = {"config.yaml", "checkpoints/index.json", "mt/x/y.py", "tests/x/test_y.py"}  # examples and run folders
    missing = [name for name in named - made if not any((folder / name).exists() for folder in (ROOT, ROOT / "mt"))]
    assert missing == []


def commands(document: Path) -> list[str]:
    """The `mt` commands in the indented blocks of a document."""
    text = document.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [
        line.partition("    #")[0].partition("     #")[0] for line in re.findall(r"^ {4}(.*)$", text, re.MULTILINE)
    ]
    return [line[line.index("mt ") :] for line in lines if re.match(r"(.*\| )?mt \w", line)]


@pytest.mark.parametrize(
    "command", [command for document in DOCUMENTS for command in commands(document)], ids=lambda text: text[:60]
)
def test_every_command_is_accepted(command):
    _, name, *arguments = shlex.split(command.partition(" < ")[0], comments=True)
    flags = {argument for argument in arguments if argument.startswith("-")}
    overrides = [argument for argument in arguments if "=" in argument]
    assert flags <= {"-m", "--cfg", "--help"} and name in COMMANDS
    lines = expand_sweep(COMMANDS[name], overrides)[0] if "-m" in flags else [overrides]
    for override in (override for line in lines for override in line):
        assert parse_override(COMMANDS[name], override)


def test_there_are_commands_to_check():
    assert len(commands(ROOT / "README.md")) >= 5


def strings(path: Path) -> list[str]:
    """The string constants of a module that are not docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    scopes = (node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef))
    docstrings = {id(scope.body[0].value) for scope in scopes if scope.body and isinstance(scope.body[0], ast.Expr)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [node.value for node in constants if id(node) not in docstrings]


def test_messages_and_help_name_no_file_of_the_repository():
    texts = [text for module in MODULES for text in strings(module)]
    texts += [overview(), *map(help_text, COMMANDS.values())]
    named = re.compile(r"README|ARCHITECTURE|CONTRIBUTING|docs/|scripts/|Makefile|constraints\.txt|\.md\b|mt/\w+/")
    assert [text for text in texts if named.search(text)] == []
