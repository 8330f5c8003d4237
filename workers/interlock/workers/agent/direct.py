"""The `direct` driver: the turn's text is the tool calls; for programs and tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from interlock.bus.errors import BadTurnError
from interlock.bus.messages import RESULT_INLINE
from interlock.workers.agent.directparse import parse
from interlock.workers.agent.driver import (
    Done,
    DriverEvent,
    Error,
    Outcome,
    TextDelta,
    ToolCalls,
    TurnContext,
    result_text,
)

_ANSWER_MAX: Final = 1 << 20
"""Characters of an answer; what is over is in the tool results, not in the answer."""


class DirectDriver:
    """Runs the calls that the text names and answers with what they returned."""

    async def run(self, turn: TurnContext) -> AsyncGenerator[DriverEvent, None]:
        """Run step after step; within a step, results are told in the order of the calls."""
        try:
            steps = parse(turn.text)
        except BadTurnError as error:
            yield Error(error.code, error.message)
            return
        said = 0
        for step in steps:
            requests = tuple(turn.request(c.name, c.arguments, c.problem) for c in step)
            yield ToolCalls(requests)
            for request in requests:
                text = describe(request.name, await request.result)
                if said < _ANSWER_MAX:
                    delta = ("\n" if said else "") + text
                    said += len(delta)
                    yield TextDelta(delta)
        yield Done()


def describe(name: str, outcome: Outcome) -> str:
    """Return what one call did, as a person would want to read it.

    >>> describe("mcp:git/git_log", Outcome("timeout", b"{}", "no answer within 2 s"))
    'mcp:git/git_log: timeout: no answer within 2 s'
    """
    if outcome.outcome not in ("ok", "tool_error"):
        return f"{name}: {outcome.outcome}: {outcome.message}"
    text = result_text(outcome.body)
    if len(text) > RESULT_INLINE:
        note = f"the first {RESULT_INLINE} of {len(text)} characters"
        if outcome.whole:  # the text may have been cut before: its length is not that of the whole
            note = f"the first {RESULT_INLINE} characters; the whole is in {outcome.whole}"
        text = f"{text[:RESULT_INLINE]}\n[{note}]"
    if outcome.outcome == "tool_error":
        return f"{name}: tool_error: {text}"
    return text or f"{name}: ok"
