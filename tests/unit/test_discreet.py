"""What a worker says of itself: secrets are taken out, and what merely looks alike stays."""

from __future__ import annotations

import asyncio
import hashlib
import tracemalloc

import msgspec
import pytest

from interlock.bus.messages import Capabilities, Notice
from interlock.bus.records import CapabilityReport, DroppedTool
from interlock.workers.discreet import Discretion, hidden_entry
from interlock.workers.secrets import Masks, resolve, resolve_entries


def masks_of(entries: dict[str, str], environ: dict[str, str]) -> Masks:
    masks = Masks()
    asyncio.run(resolve_entries(entries, environ, masks, "mcp_servers.x.env"))
    return masks


def tool(name: str, masks: Masks) -> tuple[CapabilityReport, bytes]:
    """A tool as its server lists it and the worker reads it."""
    told = {
        "name": name,
        "description": f"It lists {name}.",
        "inputSchema": {
            "type": "object",
            "properties": {name: {"type": "string", "enum": [name], "default": name}},
            "required": [name],
        },
    }
    document = hidden_entry(msgspec.json.encode(told), masks)
    digest = hashlib.sha256(document).hexdigest()
    return CapabilityReport(name=name, digest=digest, summary=f"lists {name}"), document


def said(name: str, masks: Masks) -> tuple[Capabilities, bytes]:
    row, document = tool(name, masks)
    body = msgspec.json.encode({row.digest: msgspec.Raw(document)})
    dropped = DroppedTool(name=name, reason=f"{name} is odd")
    message, sent = Discretion(masks).said(Capabilities(rows=(row,), dropped=(dropped,)), body)
    assert isinstance(message, Capabilities) and sent is not None
    return message, sent


@pytest.mark.parametrize(
    ("variable", "value"),
    [("DB", "orders"), ("PROJECT", "webshop"), ("STAGE", "Staging2"), ("ZONE", "eu-west-1")],
)
def test_an_ordinary_word_takes_no_tool_and_no_argument_away(variable: str, value: str) -> None:
    masks = masks_of({variable: f"${{{variable}}}"}, {variable: value})
    message, sent = said(f"list_{value}", masks)
    assert [row.name for row in message.rows] == [f"list_{value}"]
    assert [one.name for one in message.dropped] == [f"list_{value}"]
    (digest, document), *more = msgspec.json.decode(sent).items()
    assert not more and digest == message.rows[0].digest
    assert document["name"] == f"list_{value}"
    schema = document["inputSchema"]
    assert schema["required"] == [f"list_{value}"] == schema["properties"][f"list_{value}"]["enum"]
    assert value not in document["description"] + message.rows[0].summary  # free text is masked


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("API_TOKEN", "orders"),
        ("DB_PASS", "orders"),
        ("GH_PAT", "orders"),
        ("DB", "k7Qz_9dLx"),
        ("DB", "9f8e7d6c"),
        ("DB", "hunter2x"),
        ("DB", "abcdefghijklmnopqrstuvwxyzabcdefgh"),
    ],
)
def test_a_tool_whose_name_holds_a_secret_is_left_out(variable: str, value: str) -> None:
    masks = masks_of({"PLAIN_NAME": f"${{{variable}}}"}, {variable: value})
    message, sent = said(f"list_{value}", masks)
    assert not message.rows and "secret" in message.dropped[0].reason
    assert value not in str(message)
    assert sent == b"{}"  # its document would be one more than there are tools


def test_a_key_or_a_literal_can_say_that_a_word_is_secret() -> None:
    for entries in ({"API_KEY": "${DB}"}, {"API_KEY": "orders"}):
        message, _ = said("list_orders", masks_of(entries, {"DB": "orders"}))
        assert not message.rows
    masks = Masks()
    asyncio.run(resolve("--db=${DB}", {"DB": "orders"}, masks, "mcp_servers.x.args"))
    message, _ = said("list_orders", masks)
    assert message.rows


def test_a_value_that_is_the_name_of_a_field_breaks_no_message() -> None:
    masks = Masks()
    masks.add("message")
    masks.add("subject")
    notice = Notice(code="odd_output", message="the subject", subject="x")
    shown, _ = Discretion(masks).said(notice, None)
    assert isinstance(shown, Notice) and shown.message == "the [secret]"


def test_a_list_that_changes_for_ever_is_not_remembered_for_ever() -> None:
    """A document holds a secret and differs at each report; the last one is sent once only."""
    masks = masks_of({"API_KEY": "k7Qz_9dLx"}, {})
    discretion = Discretion(masks)
    rows: tuple[CapabilityReport, ...] = ()
    told: list[str] = []
    tracemalloc.start()
    try:
        for n in range(3_000):
            document = msgspec.json.encode({"name": "t", "description": f"{n} k7Qz_9dLx"})
            rows = (CapabilityReport(name="t", digest=hashlib.sha256(document).hexdigest()),)
            body = msgspec.json.encode({rows[0].digest: msgspec.Raw(document)})
            message, _ = discretion.said(Capabilities(rows=rows), body)
            assert isinstance(message, Capabilities)
            told = [row.digest for row in message.rows]
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 200_000
    again, _ = discretion.said(Capabilities(rows=rows), b"{}")
    assert isinstance(again, Capabilities) and [row.digest for row in again.rows] == told
    assert told != [rows[0].digest]
