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
from typing import Any, Protocol

import msgspec

from interlock.bus.records import OfferRow


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


class _Texts(msgspec.Struct):
    content: list[dict[str, Any]] = []
    structuredContent: msgspec.Raw = msgspec.Raw()  # noqa: N815 - as MCP writes it


def result_text(body: bytes) -> str:
    """Return what a result says, as text: its text items joined, others named in brackets.

    >>> result_text(b'{"content": [{"type": "text", "text": "hello"}]}')
    'hello'
    """
    try:
        result = msgspec.json.decode(body, type=_Texts)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "[a result that cannot be read]"
    parts = [_item_text(item) for item in result.content]
    if not parts and len(result.structuredContent):
        parts = [bytes(result.structuredContent).decode("utf-8", "replace")]
    return "\n".join(parts)


def _item_text(item: dict[str, Any]) -> str:
    text = item.get("text")
    if item.get("type") == "text" and isinstance(text, str):
        return text
    resource = item.get("resource")
    if isinstance(resource, dict) and isinstance(resource.get("text"), str):
        return str(resource["text"])
    detail = item.get("mimeType") or item.get("uri") or ""
    return f"[{item.get('type', 'item')}{' ' if detail else ''}{detail}]"
