"""The limits of the code: what they bound stays readable in one look."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(
    file
    for portion in ("bus", "workers", "supervisor")
    for file in (ROOT / portion / "interlock").rglob("*.py")
)
LONGEST_FUNCTION = 60
VAGUE = ("manager", "helper", "utils", "util", "misc", "common")


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_file_keeps_the_limits(file: Path) -> None:
    text = file.read_text()
    assert not any(word in file.stem.split("_") for word in VAGUE)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= LONGEST_FUNCTION, f"{node.name} has {lines} lines"


def pure_modules() -> list[str]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (pure,) = (one["source_modules"] for one in contracts if one["id"] == "pure-core")
    return list(pure)


def test_the_contract_of_the_pure_parts_is_complete_and_true() -> None:
    """Whoever calls itself pure is held to it, and nobody there opens a file."""
    listed, missing = pure_modules(), []
    for file in SOURCES:
        tree = ast.parse(file.read_text())
        name = ".".join(file.relative_to(ROOT).with_suffix("").parts[1:]).removesuffix(".__init__")
        held = any(name == one or name.startswith(f"{one}.") for one in listed)
        if re.search(r"\bpure\b", ast.get_docstring(tree) or "", re.IGNORECASE) and not held:
            missing.append(name)
        for node in ast.walk(tree) if held else ():
            if isinstance(node, ast.Import):
                assert not {one.name for one in node.names} & {"os", "shutil", "tempfile"}, name
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "open", name
    assert not missing
