"""The limits of the code: what they bound stays readable in one look."""

from __future__ import annotations

import ast
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
