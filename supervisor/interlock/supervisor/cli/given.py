"""What commands are given besides names: --json, counts, seconds, text on standard input."""

from __future__ import annotations

import sys
from typing import Any, Final

import click

from interlock.bus.given import LONGEST

MOST: Final = 1_000_000_000
"""The largest count; more of anything would not fit into memory."""

json_document = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
json_lines = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")


class Count(click.ParamType[int]):
    """A whole number from `least` to a billion."""

    name = "count"

    def __init__(self, least: int = 0) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number. Raises click's usage error."""
        try:
            number = int(value)
        except ValueError:
            number = -1
        if not self._least <= number <= MOST:
            self.fail(f"{value} is no whole number from {self._least} to a billion.", param, ctx)
        return number


class Seconds(click.ParamType[float]):
    """A number of seconds above 0 and at most a billion."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number. Raises click's usage error."""
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if not 0 < number <= LONGEST:  # Also refuses nan.
            self.fail(f"{value} is no number of seconds above 0 and up to a billion.", param, ctx)
        return number


def standard_input(limit: int) -> str:
    """Read standard input to its end.

    Raises click's usage error if it is closed, is no UTF-8, or holds more than `limit` bytes.
    """
    if sys.stdin is None:
        raise click.UsageError("Standard input is closed; give the text instead of `-`.")
    data = sys.stdin.buffer.read(limit + 1)
    if len(data) > limit:
        raise click.UsageError(f"Standard input holds more than {limit >> 20} MiB.")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise click.UsageError("What stands on standard input is not UTF-8 text.") from None
