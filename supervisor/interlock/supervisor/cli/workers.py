"""`interlock start`, `stop` and `restart`: workers by hand; says how it went."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal

import click

from interlock.bus.client import Client
from interlock.bus.errors import InterlockError
from interlock.bus.wording import listed
from interlock.supervisor.cli.exits import DONE, FAILED, code_of
from interlock.supervisor.cli.given import json_document
from interlock.supervisor.cli.output import document, note, one_line, options, write
from interlock.supervisor.cli.session import REACHED, running

Action = Literal["start", "stop", "restart"]

_PATIENCE: Final = 3600.0
"""Seconds; the supervisor answers when the outcome is known, and bounds that by its own times."""
_AT_ONCE: Final = 16
_SILENT: Final = 2.0
"""Seconds after which somebody who waits is told for what."""
_UNREACHED: Final = f"Waiting for the supervisor's socket, for {REACHED:.0f} s at most."

_NAMES = click.argument("names", nargs=-1, required=True, metavar="NAME...")


@click.command
@_NAMES
@json_document
def start(names: tuple[str, ...], as_json: bool) -> int:
    """Start workers and wait until they are READY or have failed."""
    return _control("start", names, as_json)


@click.command
@_NAMES
@json_document
def stop(names: tuple[str, ...], as_json: bool) -> int:
    """Stop workers in order; they stay stopped until they are started by hand."""
    return _control("stop", names, as_json)


@click.command
@_NAMES
@json_document
def restart(names: tuple[str, ...], as_json: bool) -> int:
    """Stop workers in order, start them again and wait for the outcome."""
    return _control("restart", names, as_json)


def _control(action: Action, names: tuple[str, ...], as_json: bool) -> int:
    home = options().home
    unique = list(dict.fromkeys(names))
    asked = threading.Event()

    def one(name: str) -> dict[str, Any] | InterlockError:
        try:
            with running(home) as bus:
                asked.set()
                return _with_advice(bus, bus.control(action, name, _PATIENCE))
        except InterlockError as error:
            return error

    def tell() -> None:
        note(_waiting(action, unique) if asked.is_set() else _UNREACHED)

    late = threading.Timer(_SILENT, tell)
    late.daemon = True
    late.start()
    if len(unique) == 1:
        answers = [one(unique[0])]
    else:
        with ThreadPoolExecutor(min(len(unique), _AT_ONCE)) as threads:
            answers = list(threads.map(one, unique))
    late.cancel()
    rows = [answer for answer in answers if isinstance(answer, dict)]
    if as_json:
        errors = [
            {"name": name, "code": answer.code, "message": answer.message}
            for name, answer in zip(unique, answers, strict=True)
            if isinstance(answer, InterlockError)
        ]
        document({"workers": rows, "errors": errors})
    return max(_tell(action, answer, as_json) for answer in answers)


def _with_advice(bus: Client, answer: dict[str, Any]) -> dict[str, Any]:
    """The answer about a worker that has failed with what to do, as status says it."""
    if answer["state"] != "FAILED":
        return answer
    rows = bus.status()["needs_attention"]
    fixes = (row["fix"] for row in rows if row["name"] == answer["name"] and row.get("fix"))
    return answer | {"fix": next(fixes, "")}


def _waiting(action: Action, names: list[str]) -> str:
    """What is waited for, said to whoever has waited for a while."""
    many = len(names) > 1
    what = "stopped" if action == "stop" else "failed"
    what = f"{'have' if many else 'has'} {what}"
    if action != "stop":
        what = f"{'are' if many else 'is'} READY or {what}"
    servers = action != "stop" and not all(name.startswith(("agent:", "core:")) for name in names)
    bound = "; a server has its `init_timeout` for that" if servers else ""
    return f"Waiting until {listed(names)} {what}{bound}."


def _tell(action: Action, answer: dict[str, Any] | InterlockError, as_json: bool) -> int:
    """Say how one worker came out of it and return the exit code for that."""
    if isinstance(answer, InterlockError):
        note(answer.message)
        return code_of(answer)
    state, reason = answer["state"], one_line(answer.get("reason") or "")
    good = state == ("STOPPED" if action == "stop" else "READY")
    if not as_json or not good:
        waits = "waits to be started again (BACKOFF)" if state == "BACKOFF" else f"is {state}"
        text = f"{answer['name']} {waits}"
        if state == "READY":
            text += f" (pid {answer['pid']}, generation {answer['generation']})"
        elif reason:
            text += f": {reason}"
        if good:
            write(text)
        else:
            advice = answer.get("fix") or f"See `interlock logs {answer['name']}`."
            note(f"{text.rstrip('.')}. {advice}")
    return DONE if good else FAILED
