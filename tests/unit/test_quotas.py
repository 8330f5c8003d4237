"""What one worker may make known, and how what is left out is said."""

from __future__ import annotations

from interlock.bus.events import Event, ToolStarted
from interlock.supervisor.attention import TOO_MANY, Attention
from interlock.supervisor.quotas import CALL_EVENTS, Quotas


def test_what_is_left_out_is_counted_and_said_once_until_the_row_is_gone() -> None:
    published: list[Event] = []
    said: list[Event] = []
    attention = Attention(said.append)
    quotas = Quotas(published.append, attention, clock=lambda: 1.0)
    event = ToolStarted(name="mcp:a", capability="mcp:a/x", call="i1")
    burst = int(CALL_EVENTS.burst)
    for _ in range(burst + 50):
        quotas.publish_call("mcp:a", event)
    assert (len(published), quotas.left_out["mcp:a"], len(said)) == (burst, 50, 1)
    attention.clear("mcp:a", TOO_MANY)
    assert not attention.has("mcp:a", TOO_MANY)
    quotas.publish_call("mcp:a", event)
    assert attention.has("mcp:a", TOO_MANY)
