"""`interlock validate`: configuration, checked without starting anything."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import msgspec

from interlock.bus.errors import ConfigError
from interlock.supervisor.cli.exits import DONE, FAILED
from interlock.supervisor.cli.given import json_document
from interlock.supervisor.cli.output import clean, document, exact, options, write
from interlock.supervisor.config import Problem, load
from interlock.supervisor.config.mistyped import mistyped
from interlock.supervisor.config.model import Loaded
from interlock.supervisor.config.present import absent
from interlock.supervisor.config.read import check_file
from interlock.supervisor.config.reading import ASKS, ASKS_LATER
from interlock.supervisor.config.toolnotes import served_last, tool_problems
from interlock.supervisor.config.workspace import LOCAL_FILE, places

UNTRUSTED: Final = "untrusted"
"""Code of what is said of the entries of a file that may not act."""
TRUST: Final = (UNTRUSTED, "changed", "gone", "nearer")
"""Codes of what is said of files that a person trusted, or has to."""


@click.command
@click.argument("file", required=False, type=click.Path(path_type=Path))
@json_document
def validate(file: Path | None, as_json: bool) -> int:
    """Check FILE, or without it every file that counts here; 1 if there are errors."""
    try:
        problems = sorted(_problems(file), key=lambda each: (each.file, each.line, each.column))
    except ConfigError as error:
        if as_json:
            document({"ok": False, "problems": [{"code": error.code, "message": error.message}]})
            return FAILED
        raise
    errors = sum(problem.severity == "error" for problem in problems)
    if as_json:
        document({"ok": not errors, "problems": [msgspec.to_builtins(each) for each in problems]})
        return FAILED if errors else DONE
    shown = list(_together(problems))
    for problem in shown:
        write(exact(f"{problem.severity}: {problem}").replace(ASKS, ASKS_LATER))
        if problem.fix:
            write(exact(f"    do: {problem.fix}"))
    what = str(file) if file is not None else "The configuration"
    if errors:
        write(clean(f"{what} has {errors} error{'s' * (errors != 1)}."))
        return FAILED
    if file is None and not (looked := _files())[0]:
        write(clean(f"There is no configuration here. Files that would count: {looked[1]}."))
        return DONE
    count = len(shown)
    told = f"has {count} warning{'s' * (count != 1)}" if count else "is in order"
    write(clean(f"{what} {told}."))
    return DONE


def _files() -> tuple[bool, str]:
    """Whether any file counts here, and the names of all that would."""
    paths = [each.path for each in places(Path.cwd(), None, os.environ).counting]
    return any(os.path.lexists(path) for path in paths), ", ".join(map(str, paths))


def _together(problems: list[Problem]) -> Iterator[Problem]:
    """Yield the problems; those of one file that is not trusted, which all ask the same, as one."""
    counts = Counter(each.file for each in problems if each.code == UNTRUSTED)
    for problem in problems:
        if problem.code != UNTRUSTED or counts[problem.file] == 1:
            yield problem
        elif count := counts.pop(problem.file, 0):
            message = "this file is not trusted as it is now; "
            message += f"at the next start none of its {count} entries acts"
            yield msgspec.structs.replace(problem, message=message, line=0, column=0)


def _problems(file: Path | None) -> tuple[Problem, ...]:
    """What is wrong with the configuration, and with tools of servers when they ran last."""
    home = options().home
    if file is None:
        here = Path.cwd()
        found = load(home, here, None, os.environ)
        untrusted = tuple(each for each in found.problems if each.code in TRUST)
        trusted = load(home, here, None, os.environ, trust_all=True)
        return (*trusted.problems, *untrusted, *_beyond(trusted))
    if file.name == LOCAL_FILE:
        # It adjusts entries of other files, so alone it would look wrong.
        found = load(home, file.absolute().parent, None, os.environ, trust_all=True)
        if file.absolute() in found.files and os.path.exists(file):
            every = (*found.problems, *_mistyped(found))
            return tuple(each for each in every if each.file == str(file.absolute()))
    found = check_file(file.absolute())
    return (*found.problems, *_beyond(found))


def _beyond(found: Loaded) -> Iterator[Problem]:
    """Yield what only this machine, and what servers said when they ran last, can tell."""
    yield from absent(found.settings, os.environ)
    yield from tool_problems(options().home, found.settings)
    yield from _mistyped(found)


def _mistyped(found: Loaded) -> list[Problem]:
    served = served_last(options().home, found.settings)
    return mistyped(found.written, served, {each.entry for each in found.problems if each.entry})
