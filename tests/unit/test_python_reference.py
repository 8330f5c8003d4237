"""The reference of the Python client names what there is, and nothing else."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from interlock import bus
from interlock.bus import AsyncClient, Client, errors

PAGE = Path(__file__).parents[2] / "docs/reference/python.md"


def test_every_method_has_its_arguments_there() -> None:
    methods = dict(inspect.getmembers(Client, inspect.isfunction))
    named = dict(re.findall(r"`(\w+)\(([^)]*)\)`", PAGE.read_text()))
    assert {name for name in methods if not name.startswith("_")} == set(named) - {"connect"}
    for name, arguments in named.items():
        if name == "connect":
            continue
        known = inspect.signature(methods[name]).parameters
        for argument in re.findall(r"\w+", arguments):
            assert argument in known, f"{name} has no {argument}"


def test_both_clients_have_the_same_and_the_page_names_it() -> None:
    public = {name for name in dir(Client) if not name.startswith("_")}
    assert public <= {*dir(AsyncClient)}
    assert all(re.search(rf"`{name}[`(]", PAGE.read_text()) for name in public)


def test_every_outcome_and_error_is_there() -> None:
    text = PAGE.read_text()
    for refused in (errors.UnauthorizedError, errors.UnreachableError, errors.ProcessLimitError):
        assert f"`{refused.__name__}`" in text  # what connecting raises
    assert all(f"`{outcome}`" in text for outcome in errors.OUTCOMES)
    for name in bus.__all__:
        found = getattr(bus, name)
        if inspect.isclass(found) and issubclass(found, errors.InterlockError):
            assert f"`{name}`" in text


def test_the_examples_are_programs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        compile(block, str(PAGE), "exec")
