"""The interface between a turn and whatever decides what the turn does: a model, or a script.

A driver is an async generator of events. To use tools it yields `ToolCalls` with requests that it
made by `TurnContext.request`; the turn runs them in parallel and sets each request's `result`,
and the driver awaits the results it needs before it goes on. A driver never sees a failed call as
an exception: every call has an outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from interlock.bus.records import OfferRow
from interlock.workers.looks import NOTHING, glance


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one call ended.

    `body` is the whole MCP result as JSON bytes, however large, or for a failure one that holds
    `message` as its text. `outcome` is one of `interlock.bus.errors.OUTCOMES`.
    """

    outcome: str
    body: bytes
    message: str = ""
    duration_ms: float = 0.0
    candidates: tuple[str, ...] = ()
    whole: str = ""
    """Path of the file that holds the whole of a result of which only the beginning is shown."""


@dataclass(slots=True)
class ToolRequest:
    """One call that a driver asks for.

    `problem` says why it cannot be made as written (then it ends as invalid_arguments). `result`
    is set exactly once, and cancelled when the turn ends first. `sent`: a server may have it.
    """

    id: str
    name: str
    arguments: bytes
    result: asyncio.Future[Outcome]
    problem: str = ""
    sent: bool = False


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """One step: calls to run in parallel. Counts towards the agent's `max_steps`."""

    calls: tuple[ToolRequest, ...]


@dataclass(frozen=True, slots=True)
class OwnToolCall:
    """A driver that has tools of its own (an agent program) started one; shown, not run."""

    id: str
    capability: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class OwnToolResult:
    """The driver's own tool call `id` ended."""

    id: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that the model counted since the last such event."""

    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Done:
    """The turn ended well; `text` is the whole answer, or None for all deltas joined."""

    text: str | None = None


@dataclass(frozen=True, slots=True)
class Error:
    """The turn failed; `message` is one sentence that says what to do next."""

    code: str
    message: str


DriverEvent = TextDelta | ToolCalls | OwnToolCall | OwnToolResult | Usage | Done | Error


@dataclass(slots=True)
class TurnContext:
    """What a driver knows of its turn. `offer` is live: it follows updates of the offer."""

    turn: str
    session: str
    text: str
    unattended: bool
    offer: dict[str, OfferRow]
    requests: int = field(default=0, init=False)

    def request(self, name: str, arguments: bytes = b"{}", problem: str = "") -> ToolRequest:
        """Make a request for a step, with an id that is unique within the turn."""
        self.requests += 1
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        return ToolRequest(f"call_{self.requests}", name, arguments, future, problem)


class Driver(Protocol):
    """Decides what a turn does. One driver serves all turns of its agent, several at once."""

    def run(self, turn: TurnContext) -> AsyncGenerator[DriverEvent, None]:
        """Yield the turn's events; ends with `Done` or `Error`.

        Cancelling the consumer closes the generator; it then has to release what it holds.
        """
        ...


class _Item(msgspec.Struct):
    type: msgspec.Raw = NOTHING
    text: msgspec.Raw = NOTHING
    resource: msgspec.Raw = NOTHING
    mimeType: msgspec.Raw = NOTHING  # noqa: N815 - as MCP writes it
    uri: msgspec.Raw = NOTHING


_item: Final = msgspec.json.Decoder(_Item).decode


def result_text(body: bytes) -> str:
    """Return what a result says, as text: its text items joined, others named in brackets.

    >>> result_text(b'{"content": [{"type": "text", "text": "hello"}]}')
    'hello'
    """
    found = glance(body)
    if found is None:
        return "[a result that cannot be read]"
    parts = [_item_text(item) for item in found.content]
    if not parts and len(found.structured):
        parts = [bytes(found.structured).decode("utf-8", "replace")]
    if found.more:
        parts.append("[and more]")
    return "\n".join(parts)


def _item_text(raw: msgspec.Raw) -> str:
    item = _fields(raw)
    kind = _string(item.type)
    if kind == "text" and (text := _string(item.text)) is not None:
        return text
    if len(item.resource) and (text := _string(_fields(item.resource).text)) is not None:
        return text
    detail = _string(item.mimeType) or _string(item.uri) or ""
    return f"[{kind or 'item'}{' ' if detail else ''}{detail}]"


def _fields(raw: msgspec.Raw) -> _Item:
    try:
        return _item(raw)
    except (msgspec.MsgspecError, RecursionError):
        return _Item()


def _string(raw: msgspec.Raw) -> str | None:
    try:
        return msgspec.json.decode(raw, type=str) if len(raw) else None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
