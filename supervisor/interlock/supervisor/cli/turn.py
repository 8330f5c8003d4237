"""`interlock turn` and `turn-watch`: a turn's stream, as it comes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

import click
import msgspec

from interlock.bus.client import Client
from interlock.bus.errors import ConnectionLostError
from interlock.bus.given import encode_text
from interlock.bus.limits import MAX_TEXT
from interlock.bus.watching import ENDED
from interlock.supervisor.cli.exits import DONE, FAILED, TIMED_OUT
from interlock.supervisor.cli.given import Count, Seconds, json_lines, standard_input
from interlock.supervisor.cli.output import clean, counted, cut, document, note, one_line, write
from interlock.supervisor.cli.reader import end_with_reader
from interlock.supervisor.cli.session import client, turn_meant

_ENDS: Final = ("turn.completed", "turn.failed", "turn.cancelled")
_ARGUMENTS: Final = 200
"""Characters of a call's arguments that people are shown."""
_TOLD_APART: Final = 60
"""Characters of them beside a result, where several calls of one capability are under way."""


@click.command
@click.argument("text")
@click.option("--agent", default="", metavar="A", help="Which agent; else the default one.")
@click.option("--session", default="", metavar="S", help="Conversation that the turn belongs to.")
@json_lines
@click.option("--detach", is_flag=True, help="Print the turn's id and leave it running.")
@click.option("--deadline", type=Seconds(), metavar="SEC", help="Seconds.")
@click.option("--unattended", is_flag=True, help="Nobody is there to approve anything.")
@click.option("--id", "turn_id", metavar="ID", help="32 hex digits; the same id is the same turn.")
def turn(
    text: str,
    agent: str,
    session: str,
    as_json: bool,
    detach: bool,
    deadline: float | None,
    unattended: bool,
    turn_id: str | None,
) -> int:
    """Send a turn to an agent and stream its answer. TEXT has at most 1 MiB.

    TEXT `-` reads standard input.
    """
    if turn_id is not None and not _is_turn_id(turn_id):
        raise click.UsageError(f"{turn_id} is no turn id; it has 32 hex digits.")
    if text == "-":
        text = standard_input(MAX_TEXT)
    encode_text(text)  # What cannot be sent is wrong whether a supervisor runs or not.
    with client() as bus:
        started = bus.start_turn(
            text,
            agent=agent,
            session=session,
            id=turn_id,
            deadline=deadline,
            unattended=unattended,
        )
        if detach:
            if as_json:
                document({"turn": started["turn"]})
            else:
                write(started["turn"])
            return DONE
        return follow(bus, started["turn"], 0, as_json=as_json, cancel=True)


@click.command
@click.argument("turn_id", metavar="ID")
@click.option("--offset", type=Count(), default=0, help="Line to begin with, from 0.")
@json_lines
def turn_watch(turn_id: str, offset: int, as_json: bool) -> int:
    """Watch a turn from its start or an offset to its end; Ctrl-C leaves it running."""
    with client() as bus:
        turn_id = turn_meant(bus, turn_id)
        return follow(bus, turn_id, offset, as_json=as_json, cancel=False)


def follow(bus: Client, turn_id: str, offset: int, *, as_json: bool, cancel: bool) -> int:
    """Show a turn's stream to its end and return the exit code for that.

    With `cancel` the first Ctrl-C cancels the turn and shows how it ends, the second one leaves.
    """
    end_with_reader()
    show = _Show(as_json)
    stream = bus.watch(turn_id, offset)
    try:
        end = _drain(stream, show)
        return _exit_code(end) if end is not None else _ended_before(bus, turn_id)
    except KeyboardInterrupt:
        if not cancel:
            raise
    note("Cancelling the turn; Ctrl-C again leaves at once.")
    bus.turn_cancel(turn_id)
    _drain(bus.watch(turn_id, max(offset, show.next_offset)), show)
    return FAILED


def _drain(stream: Iterator[dict[str, Any]], show: _Show) -> dict[str, Any] | None:
    """Show a stream; the item that ends its turn, None where none came."""
    for item in stream:
        show.item(item)
        if item["type"] in _ENDS:
            return item
    return None


def _ended_before(bus: Client, turn_id: str) -> int:
    """The exit code of a turn that has nothing to show any more, as whoever watched on sees."""
    found = bus.turn_show(turn_id)
    if found["state"] not in ENDED:
        raise ConnectionLostError(
            "The turn's stream ended before the turn did; see `interlock turns`."
        )
    note(f"There is no more of this turn to show; it has ended: {found['state']}.")
    return _exit_code({**found, "type": f"turn.{found['state']}"})


def _exit_code(end: dict[str, Any]) -> int:
    if end["type"] == "turn.completed":
        return DONE
    return TIMED_OUT if end.get("code") == "deadline" else FAILED


class _Show:
    """Writes items: the answer's text to standard output, what happens to standard error."""

    def __init__(self, as_json: bool) -> None:
        self.next_offset = 0
        self._json = as_json
        self._told = False
        self._calls: dict[str, tuple[str, str]] = {}
        self._ended = self._failed = 0
        self._line_open = False
        self._terminal = sys.stdout.isatty()

    def item(self, item: dict[str, Any]) -> None:
        """Write one item."""
        self.next_offset = item.get("offset", self.next_offset) + 1
        if self._json:
            document(item)
            return
        match item["type"]:
            case "text.delta":
                text = item["text"]
                write(clean(text) if self._terminal else text, end="")
                self._told = self._told or bool(text)
                self._line_open = not text.endswith("\n")
            case "tool.call":
                arguments = one_line(msgspec.json.encode(item["arguments"]).decode())
                self._calls[item["id"]] = item["capability"], arguments
                self._note(f"-> {item['capability']} {cut(arguments, _ARGUMENTS)}")
            case "tool.result":
                self._result(item)
            case "approval.waiting":
                self._note(
                    f"waits for approval: `interlock approve {item['id']}`, or deny; "
                    "`interlock approvals` shows what it is about"
                )
            case "turn.completed":
                if not self._told and item["text"]:
                    write(clean(item["text"]) if self._terminal else item["text"], end="")
                    self._line_open = not item["text"].endswith("\n")
                self._end_line()
                if self._failed:
                    calls = counted(self._ended, "call", "calls")
                    note(f"{self._failed} of {calls} failed.")
            case "turn.failed":
                self._note(item["message"])
            case "turn.cancelled":
                self._note("The turn was cancelled.")

    def _result(self, item: dict[str, Any]) -> None:
        """Say how a call ended, and which; its arguments tell it from others under way."""
        self._ended += 1
        self._failed += item["outcome"] != "ok"
        capability, arguments = self._calls.pop(item["id"], ("a call", ""))
        others = {one for one, _ in self._calls.values()}
        which = f"{capability} {cut(arguments, _TOLD_APART)}"
        which = which if capability in others else capability
        self._note(f"<- {which}: {item['outcome']} after {item['duration_ms']:.0f} ms")

    def _note(self, text: str) -> None:
        self._end_line()
        note(text)

    def _end_line(self) -> None:
        if self._line_open:
            write("")
            self._line_open = False


def _is_turn_id(text: str) -> bool:
    return len(text) == 32 and all(digit in "0123456789abcdef" for digit in text)
