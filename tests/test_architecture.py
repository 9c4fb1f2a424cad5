"""Reads the imports of mt/ and fails on every edge that the design does not draw."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "mt"

# Who may import whom. A module is ruled by its own line where it has one, else by its package's; what it may
# import is a module or a whole package. Modules without a line of their own may import from their package.
LEAVES = {"errors", "config", "jobs", "runtime", "reporting"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "config": set(),
    "jobs": {"errors", "config"},
    "runtime": {"errors", "config"},
    "reporting": {"errors", "config", "runtime.cores"},
    "data": LEAVES,
    "model": LEAVES,
    "checkpoint": {*LEAVES, "data.tokenizer", "model"},
    "checkpoint_store": {*LEAVES, "data.tokenizer", "checkpoint"},
    "decoding": {*LEAVES, "data", "model", "checkpoint"},
    "decoding.search": set(),
    "evaluation": {*LEAVES, "data", "model", "checkpoint", "checkpoint_store", "decoding"},
    "training": {*LEAVES, "data", "model", "checkpoint", "checkpoint_store", "decoding", "evaluation"},
    "overrides": {"errors", "config", "jobs"},
    "compose": {"errors", "config", "jobs", "overrides"},
    "commands": {"config", "overrides"},
    "cli": {
        *LEAVES,
        "commands",
        "overrides",
        "compose",
        "data",
        "model",
        "checkpoint",
        "checkpoint_store",
        "decoding",
        "evaluation",
        "training",
    },
    "__main__": {"cli"},
    "": {"decoding"},  # the package itself: mt.Translator
}

# Libraries that belong to one place each
OWNERS = {
    "torch.distributed": {"runtime.distributed", "runtime.launcher"},
    "torch.nn.parallel": {"runtime.distributed"},
    "hydra": {"overrides", "compose", "cli"},
    "omegaconf": {"overrides", "compose", "cli"},
    "torchtext": {"data.words"},
    "ctranslate2": {"decoding.exported", "decoding.conversion"},
}


def modules(root: Path) -> dict[str, ast.Module]:
    """Dotted name below mt and syntax tree of every file; a package goes by the package's name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = list(path.relative_to(root).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return found


def imported(tree: ast.Module) -> set[str]:
    """Absolute dotted names of everything that a file imports or reaches by attribute, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
    return names


def within(name: str, places: set[str]) -> bool:
    return any(name == place or name.startswith(f"{place}.") for place in places)


def forbidden_edges(found: dict[str, ast.Module]) -> list[str]:
    edges = []
    for name, tree in found.items():
        rule = name if name in ALLOWED else name.partition(".")[0]
        allowed = ALLOWED[rule] | ({rule} if rule == name.partition(".")[0] else set())
        for target in imported(tree):
            if target == "mt" or target.startswith("mt."):
                inner = target.removeprefix("mt").removeprefix(".")
                # `from mt.data import x`: x may be a module or a name in the package
                if not within(inner, allowed):
                    edges.append(f"{name or 'mt'} imports {target}")
    return sorted(edges)


def stray_libraries(found: dict[str, ast.Module]) -> list[str]:
    return sorted(
        f"{name or 'mt'} uses {library}"
        for name, tree in found.items()
        for library, owners in OWNERS.items()
        if name not in owners and any(within(target, {library}) for target in imported(tree))
    )


def test_imports_go_down_only():
    assert forbidden_edges(modules(ROOT)) == []


def test_libraries_stay_where_they_belong():
    assert stray_libraries(modules(ROOT)) == []


def test_every_module_has_a_rule():
    rooms = {name.partition(".")[0] for name in modules(ROOT)}
    assert rooms <= ALLOWED.keys()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("data.text", "from mt.model.transformer import Transformer"),
        ("model.attention", "import mt.data.text"),
        ("model.attention", "from mt import data"),
        ("decoding.search", "from mt.errors import UserError"),
        ("decoding.search", "from mt.decoding import translator"),
        ("decoding.translator", "from mt.evaluation import metrics"),
        ("checkpoint", "from mt.data.text import read_lines"),
        ("training.loop", "def late():\n    from mt.cli import main"),
        ("config", "from mt.runtime import device"),
        ("runtime.device", "import mt.reporting"),
    ],
)
def test_a_wrong_edge_is_found(name, line):
    assert len(forbidden_edges({name: ast.parse(line)})) == 1


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("training.loop", "import torch.distributed as dist"),
        ("training.loop", "import torch\ntorch.distributed.barrier()"),
        ("training.loop", "from torch import distributed"),
        ("checkpoint", "from omegaconf import OmegaConf"),
        ("data.tokenizer", "from torchtext.vocab import Vocab"),
    ],
)
def test_a_stray_library_is_found(name, line):
    assert len(stray_libraries({name: ast.parse(line)})) == 1


def test_right_edges_pass():
    for target in ("mt.checkpoint", "mt.decoding.search", "mt.data.text"):
        assert forbidden_edges({"decoding.translator": ast.parse(f"import {target}")}) == []
    assert forbidden_edges({"checkpoint": ast.parse("from mt.data.tokenizer import Tokenizer")}) == []
    assert forbidden_edges({"checkpoint": ast.parse("from mt.data import tokenizer")}) == []
