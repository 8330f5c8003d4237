"""What one worker may make known, and how what is left out is said."""

from __future__ import annotations

from interlock.bus.events import Event, ToolStarted
from interlock.supervisor.attention import TOO_MANY, Attention
from interlock.supervisor.control.quotas import CALL_EVENTS, Quotas


def quotas_with(published: list[Event], attention: Attention) -> Quotas:
    return Quotas(published.append, attention, clock=lambda: 1.0)


def test_calls_that_are_left_out_are_counted_and_trouble_nobody() -> None:
    published: list[Event] = []
    said: list[Event] = []
    quotas = quotas_with(published, Attention(said.append))
    event = ToolStarted(name="mcp:a", capability="mcp:a/x", call="i1")
    burst = int(CALL_EVENTS.burst)
    for _ in range(burst + 50):
        quotas.publish_call("mcp:a", event)
    assert (len(published), quotas.left_out["mcp:a"], said) == (burst, 50, [])


def test_reports_that_are_left_out_are_said_once_until_the_row_is_gone() -> None:
    said: list[Event] = []
    attention = Attention(said.append)
    quotas = quotas_with([], attention)
    for _ in range(50):
        quotas.leave_out("mcp:a")
    assert (quotas.left_out["mcp:a"], len(said)) == (50, 1)
    attention.clear("mcp:a", TOO_MANY)
    assert not attention.has("mcp:a", TOO_MANY)
    quotas.leave_out("mcp:a")
    assert attention.has("mcp:a", TOO_MANY)
