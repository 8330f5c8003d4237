"""`interlock call`: one capability, directly."""

from __future__ import annotations

import json
import re
import select
import sys
import time
from typing import Any, Final

import click
import msgspec

from interlock.bus.given import encode_arguments
from interlock.bus.limits import MAX_MESSAGE
from interlock.bus.messages import Progress
from interlock.supervisor.cli.exits import code_of_outcome
from interlock.supervisor.cli.given import Seconds, json_document, standard_input
from interlock.supervisor.cli.output import (
    agreed,
    clean,
    document,
    means_yes,
    note,
    one_line,
    write,
)
from interlock.supervisor.cli.session import client

_ABOUT_ARGUMENTS: Final = re.compile(
    r"argument|parameter|validat|schema|propert|\brequired\b|\bmissing\b|\bexpected\b|-32602",
    re.IGNORECASE,
)
EVERY: Final = 1.0
"""Seconds between two lines about how far a server is."""
_LOOKED_AT: Final = 2_000
"""Characters of each text of a failure that are looked at."""


@click.command
@click.argument("capability")
@click.argument("arguments", default="{}", metavar="[JSON]")
@json_document
@click.option(
    "--timeout",
    type=Seconds(),
    metavar="SEC",
    help="Seconds; else what the server is configured with.",
)
@click.option("--yes", is_flag=True, help="Approve the call, if that is needed, without asking.")
def call(capability: str, arguments: str, as_json: bool, timeout: float | None, yes: bool) -> int:
    """Call CAPABILITY (mcp:git/git_status) with a JSON object; `-` reads it from standard input.

    A call that a person has to approve is asked for here, or without a terminal waits for
    `interlock approve`.
    """
    given = _object(capability, standard_input(MAX_MESSAGE) if arguments == "-" else arguments)
    with client() as bus:
        ask = (lambda question: True) if yes else _ask
        seen = Progression() if sys.stderr is not None and sys.stderr.isatty() else None
        result = bus.call(capability, given, timeout=timeout, on_approval=ask, on_progress=seen)
    if as_json:
        document(msgspec.to_builtins(result))
    else:
        _show(result.content, to_output=result.outcome in ("ok", "tool_error"))
        if not result.ok:
            doubt = "; it may have run all the same" if result.may_have_run else ""
            note(f"{capability}: {result.outcome}{doubt}.")
        if result.outcome == "invalid_arguments" or (
            result.outcome == "tool_error" and about_arguments(result.content)
        ):
            note(f"`interlock tools {capability}` shows what arguments it takes.")
    return code_of_outcome(result.outcome)


class Progression:
    """Says to whoever waits how far a server is, not more than once in `EVERY` seconds."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, at: Progress) -> None:
        """Take in what the server reports."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + EVERY
            total = "" if at.total is None else f" of {at.total:g}"
            about = f": {one_line(at.message)}" if at.message else ""
            note(f"... {at.progress:g}{total}{about}")


def _ask(question: str) -> bool | None:
    """Ask whoever sits here; None if nobody does, so that somebody elsewhere may answer."""
    if sys.stdin is not None and sys.stdin.isatty():
        return agreed(f"{question} Let it run?")
    # A yes or no that was given in advance counts as well; anything else is no answer.
    ready = select.select([sys.stdin], [], [], 0)[0] if sys.stdin is not None else []
    line = sys.stdin.readline() if ready else ""
    if means_yes(line):
        return True
    if line.strip().lower() in ("n", "no"):
        return False
    note(f"{question} It waits; see `interlock approvals`.")
    return None


def _object(capability: str, text: str) -> dict[str, Any]:
    do = f'write them like \'{{"path": "."}}\'; `interlock tools {capability}` shows what it takes.'
    if text.lstrip()[:1] != "{":
        raise click.UsageError(f"The arguments are no JSON object; {do}")
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise click.UsageError(f"The arguments are no JSON object: {error}; {do}") from None
    except RecursionError:
        raise click.UsageError("The arguments are nested too deeply.") from None
    except ValueError:
        raise click.UsageError("The arguments hold a number with too many digits.") from None
    if not isinstance(found, dict):
        raise click.UsageError(f"The arguments are no JSON object; {do}")
    encode_arguments(found)  # What cannot be sent is wrong whether a supervisor runs or not.
    return found


def _show(content: list[Any], *, to_output: bool) -> None:
    """Write text items as text and name the others."""
    for item in content:
        if isinstance(item, dict) and isinstance(item.get("text"), str):
            text = item["text"]
        else:
            text = _other(item)
        if to_output:
            write(clean(text) if sys.stdout.isatty() else text)
        else:
            note(text)


def about_arguments(content: list[Any]) -> bool:
    """Whether a tool that failed says that its arguments were wrong, and not that its work was.

    >>> about_arguments([{"type": "text", "text": "ENOENT: no such file"}])
    False
    """
    texts = (item.get("text") for item in content if isinstance(item, dict))
    return any(
        _ABOUT_ARGUMENTS.search(text[:_LOOKED_AT]) for text in texts if isinstance(text, str)
    )


def _other(item: Any) -> str:
    """The text of a resource, or what else an item is."""
    inner = item.get("resource") if isinstance(item, dict) else None
    if isinstance(inner, dict) and isinstance(inner.get("text"), str):
        return str(inner["text"])
    kind = item.get("type", "item") if isinstance(item, dict) else "item"
    return f"[{kind}; shown with --json]"
