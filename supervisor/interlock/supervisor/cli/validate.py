"""`interlock validate`: configuration, checked without starting anything."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from interlock.bus.errors import ConfigError
from interlock.supervisor.cli.exits import DONE, FAILED
from interlock.supervisor.cli.output import clean, document, exact, options, write
from interlock.supervisor.config import Problem, load
from interlock.supervisor.config.read import check_file
from interlock.supervisor.config.workspace import LOCAL_FILE
from interlock.supervisor.toolnotes import tool_problems


@click.command
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
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
    for problem in problems:
        write(exact(f"{problem.severity}: {problem}"))
        if problem.fix:
            write(exact(f"    do: {problem.fix}"))
    what = str(file) if file is not None else "The configuration"
    if errors:
        write(clean(f"{what} has {errors} error{'s' * (errors != 1)}."))
        return FAILED
    write(clean(f"{what} is in order."))
    return DONE


def _problems(file: Path | None) -> tuple[Problem, ...]:
    """What is wrong with the configuration, and with tools of servers when they ran last."""
    home = options().home
    if file is None:
        here = Path.cwd()
        found = load(home, here, None, os.environ)
        untrusted = tuple(each for each in found.problems if each.code == "untrusted")
        trusted = load(home, here, None, os.environ, trust_all=True)
        return (*trusted.problems, *untrusted, *tool_problems(home, trusted.settings))
    if file.name == LOCAL_FILE:
        # It adjusts entries of other files, so alone it would look wrong.
        found = load(home, file.absolute().parent, None, os.environ, trust_all=True)
        if file.absolute() in found.files and file.exists():
            return tuple(each for each in found.problems if each.file == str(file.absolute()))
    settings, problems = check_file(file.absolute())
    return (*problems, *tool_problems(home, settings))
