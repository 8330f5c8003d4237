"""What a client hands back for a call, and how error answers become exceptions. Pure."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from interlock.bus.codec import check_json
from interlock.bus.errors import (
    OUTCOMES,
    ApprovalClosedError,
    InterlockError,
    MalformedError,
    NotFoundError,
    UnauthorizedError,
)
from interlock.bus.messages import Reply

_BY_CODE: Final[dict[str, type[InterlockError]]] = {
    error.code: error for error in (UnauthorizedError, NotFoundError, ApprovalClosedError)
}


class CallResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended; the fields are those of `interlock call --json`."""

    capability: str
    outcome: str
    """One of `interlock.bus.errors.OUTCOMES`."""
    content: list[Any] = []
    """MCP content items; where there is no result, one text item that says why."""
    structured: Any = None
    """The result's structuredContent."""
    duration_ms: float = 0.0
    may_have_run: bool = False
    """The tool had the request and did not answer, so its effect is unknown."""

    @property
    def ok(self) -> bool:
        """Whether the tool did what was asked."""
        return self.outcome == "ok"

    @property
    def text(self) -> str:
        """All text items, joined by newlines."""
        return "\n".join(
            item["text"]
            for item in self.content
            if isinstance(item, dict) and isinstance(item.get("text"), str)
        )


def call_result(
    capability: str, outcome: str, body: bytes | None, duration_ms: float = 0.0
) -> CallResult:
    """Read the body of a result; one that is no MCP result is a `tool_error` that says so."""
    try:
        document = check_json(body or b"{}")
    except MalformedError as error:
        document = None
        problem = error.message
    else:
        problem = "The result is not an object."
    if not isinstance(document, dict):
        return failed_call(capability, "tool_error", problem, duration_ms, may_have_run=True)
    content = document.get("content")
    return CallResult(
        capability=capability,
        outcome=outcome,
        content=content if isinstance(content, list) else [],
        structured=document.get("structuredContent"),
        duration_ms=duration_ms,
    )


def failed_call(
    capability: str,
    outcome: str,
    message: str,
    duration_ms: float = 0.0,
    *,
    may_have_run: bool = False,
) -> CallResult:
    """Return a result that has no body; an unknown outcome counts as `unavailable`."""
    return CallResult(
        capability=capability,
        outcome=outcome if outcome in OUTCOMES else "unavailable",
        content=[{"type": "text", "text": message}],
        duration_ms=duration_ms,
        may_have_run=may_have_run,
    )


def refused_call(capability: str, reply: Reply) -> CallResult:
    """Return the result of a call that the supervisor did not let begin."""
    return failed_call(capability, reply.code, _sentence(reply))


def error_of(reply: Reply) -> InterlockError:
    """Return the exception for an error reply; the code is kept."""
    kind = _BY_CODE.get(reply.code, InterlockError)
    return kind(_sentence(reply), code=reply.code)


def _sentence(reply: Reply) -> str:
    """Return the message, and what to do next where the reply says so."""
    message = reply.message or f"The supervisor answered {reply.code}."
    return f"{message} Try: {reply.fix}" if reply.fix else message
