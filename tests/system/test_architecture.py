"""The imports of mt/ follow the table in ARCHITECTURE.md and are not circular."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")

# Libraries that belong to one place each
OWNERS = {
    "torch.distributed": {"runtime.distributed", "runtime.launcher"},
    "torch.nn.parallel": {"runtime.distributed"},
    "hydra": {"config.overrides", "config.compose"},
    "omegaconf": {"config.compose"},
    "sentencepiece": {"tokenizers.sentencepiece", "tokenizers.training"},
    "torchtext": {"tokenizers.words"},
    "ctranslate2": {"decoding.exported", "decoding.conversion"},
}


def drawn_arrows():
    """The table of components in ARCHITECTURE.md: for each one, the components and modules that it may import."""
    rows = re.findall(r"^\| `([\w/.]+)` \| [^|]+ \|([^|]*)\|$", PAGE, re.MULTILINE)
    return {place(name): {place(each) for each in re.findall(r"`([\w/.]+)`", sees)} for name, sees in rows}


def place(name):
    """Convert "mt/config/" or "mt/cli.py" to a dotted name below mt; mt/__init__.py becomes the empty name."""
    return name.removeprefix("mt/").removesuffix(".py").strip("/").replace("/", ".").removesuffix("__init__")


ALLOWED = drawn_arrows()


def modules(root):
    """The syntax tree of every file by its dotted name below mt; an __init__.py has the name of its package."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = list(path.relative_to(root).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return found


MODULES = modules(ROOT / "mt")


def imported(tree, for_type_checking=True):
    """Absolute dotted names of everything that a file imports anywhere or accesses as an attribute."""
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not for_type_checking:
            skipped |= set(ast.walk(node))
    names = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names.add(f"{node.value.id}.{node.attr}")
    return names


def within(name, places):
    return any(name == place or name.startswith(f"{place}.") for place in places)


def inner(name):
    return name.removeprefix("mt").removeprefix(".") if name == "mt" or name.startswith("mt.") else None


def forbidden_edges(found):
    edges = []
    for name, tree in found.items():
        rule = name if name in ALLOWED else name.partition(".")[0]
        allowed = ALLOWED[rule] | ({rule} if rule == name.partition(".")[0] else set())
        for target in imported(tree):
            # `from mt.data import x`: x may be a module or a name in the package
            if inner(target) is not None and not within(inner(target), allowed):
                edges.append(f"{name or 'mt'} imports {target}")
    return sorted(edges)


def stray_libraries(found):
    return sorted(
        f"{name or 'mt'} uses {library}"
        for name, tree in found.items()
        for library, owners in OWNERS.items()
        if name not in owners and any(within(target, {library}) for target in imported(tree))
    )


def circles(graph):
    """Every cycle of a graph {node: nodes}, as a list of its nodes."""
    found, done = [], set()

    def visit(node, path):
        if node in path:
            found.append([*path[path.index(node) :], node])
        elif node not in done:
            for following in sorted(graph[node]):
                visit(following, [*path, node])
            done.add(node)

    for node in graph:
        visit(node, [])
    return found


def import_graph(found):
    """The modules that each module imports, except for type checking."""
    graph = {}
    for name, tree in found.items():
        targets = [inner(target) for target in imported(tree, for_type_checking=False) if inner(target)]
        candidates = [[module for module in found if module and within(target, {module})] for target in targets]
        graph[name] = {max(each, key=len) for each in candidates if each} - {name}
    return graph


def test_the_page_has_all_components():
    components = {name.partition(".")[0] for name in MODULES}
    assert components == {name.partition(".")[0] for name in ALLOWED}


def test_no_import_goes_where_no_arrow_is_drawn():
    assert forbidden_edges(MODULES) == []


def test_the_drawn_arrows_have_no_circle():
    """A module with its own row counts as a component."""
    graph = {name: {t if t in ALLOWED else t.partition(".")[0] for t in targets} for name, targets in ALLOWED.items()}
    assert circles(graph) == []


def test_no_module_imports_itself_by_way_of_others():
    assert circles(import_graph(MODULES)) == []


def test_libraries_stay_where_they_belong():
    assert stray_libraries(MODULES) == []


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("corpora.formats", "from mt.model.transformer import Transformer"),
        ("model.attention", "import mt.data.batching"),
        ("model.attention", "from mt import data"),
        ("decoding.search", "from mt.errors import UserError"),
        ("decoding.search", "from mt.decoding import translator"),
        ("decoding.translator", "from mt.evaluation import metrics"),
        ("checkpoint.folder", "from mt.corpora.formats import read_lines"),
        ("training.loop", "def late():\n    from mt.cli import main"),
        ("config.schema", "from mt.runtime import device"),
        ("runtime.device", "import mt.reporting"),
        ("data.batching", "from mt.training.step import train_step"),
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
        ("checkpoint.folder", "from omegaconf import OmegaConf"),
        ("tokenizers.tokenizer", "from torchtext.vocab import Vocab"),
    ],
)
def test_a_stray_library_is_found(name, line):
    assert len(stray_libraries({name: ast.parse(line)})) == 1


def test_right_edges_pass():
    for target in ("mt.checkpoint.folder", "mt.decoding.search", "mt.data.batching"):
        assert forbidden_edges({"decoding.translator": ast.parse(f"import {target}")}) == []
    assert forbidden_edges({"checkpoint.folder": ast.parse("from mt.tokenizers.tokenizer import Tokenizer")}) == []


def test_a_circle_is_found():
    trees = {
        "a": "import mt.b",
        "b": "def late():\n    from mt.c import x",
        "c": "from mt import a",
        "d": "import mt.a",
    }
    found = {name: ast.parse(text) for name, text in trees.items()}
    assert circles(import_graph(found)) == [["a", "b", "c", "a"]]
    found["b"] = ast.parse("if TYPE_CHECKING:\n    from mt.c import x")
    assert circles(import_graph(found)) == []
