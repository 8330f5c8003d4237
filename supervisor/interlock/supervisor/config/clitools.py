"""What can be wrong with a command-line tool's entry beyond the types of its keys; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from interlock.bus.settings import CliToolSettings

RESERVED: Final = ("subcommand",)
"""Names that calls of tools with subcommands use already."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_OPTION: Final = re.compile(r"-[^\s=]+")


def cli_faults(settings: CliToolSettings) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the key path, below the entry, and the sentence of each fault.

    >>> list(cli_faults(CliToolSettings(command="gh", subcommands=("pr list", "--help"))))
    [(('subcommands',), "'--help' is no subcommand: words that do not begin with -")]
    """
    if not settings.command:
        yield (), "command is missing"
    for line in settings.subcommands:
        words = line.split()
        if not words or any(word.startswith("-") for word in words):
            message = f"{line[:40]!r} is no subcommand: words that do not begin with -"
            yield ("subcommands",), message
    open_list = ""
    for name, argument in settings.arguments.items():
        where = ("arguments", name)
        if not _NAME.fullmatch(name) or (name in RESERVED and settings.subcommands):
            yield where, f"{name[:40]!r} cannot be the name of an argument here"
        if argument.option and not _OPTION.fullmatch(argument.option):
            yield (*where, "option"), "option must begin with - and hold no space and no ="
        if argument.type == "boolean" and not argument.option:
            yield (*where, "option"), "an argument of type boolean needs the option that it sets"
        if argument.choices and argument.type != "string":
            yield (*where, "choices"), "only an argument of type string can have choices"
        if not argument.option:
            if open_list:
                yield where, f"nothing can follow the list {open_list}, which takes all words"
            open_list = name if argument.type == "list" else open_list
