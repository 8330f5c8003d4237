"""The three portions stay one namespace package, and nothing but re-exports stands in them."""

from pathlib import Path

import interlock

ROOT = Path(__file__).parents[2]
PORTIONS = ("bus", "workers", "supervisor")


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
