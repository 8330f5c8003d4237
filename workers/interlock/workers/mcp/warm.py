"""Warms a process image: one whole SDK session against a server that exists in memory only.

Afterwards everything that the SDK builds lazily is built, so that forks of the image share it. No
thread, process, socket or event loop is left. It can be done again: what runs here shows the image
what its forks will run.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
from typing import Any, Final

import msgspec

from interlock.bus.codec import encode
from interlock.bus.messages import Capabilities
from interlock.bus.records import Boot
from interlock.bus.settings import McpConfigure
from interlock.workers.discreet import hidden_entry
from interlock.workers.looks import items
from interlock.workers.mcp import tools, worker
from interlock.workers.mcp.handshake import SdkSession
from interlock.workers.secrets import Masks

_ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {"listChanged": True}, "logging": {}},
        "serverInfo": {"name": "warm", "version": "1"},
        "instructions": "",
    },
}
_LIST: Final = (
    b'{"tools":[{"name":"warm","description":"Warms.","inputSchema":{"type":"object",'
    b'"properties":{"text":{"type":"string","description":"A text."}},"required":["text"]}}]}'
)
SECONDS: Final = 20.0


def warm() -> None:
    """Import the kind and run the session.

    Raises WorkerError or TimeoutError if the SDK does not work here.
    """
    worker.kind()
    worker.own_version()
    codecs.lookup("ascii")
    _decoders()
    _tools()
    asyncio.run(_session())


def _decoders() -> None:
    """Have msgspec look at the types that each worker reads once; an empty map is none of them."""
    with contextlib.suppress(msgspec.MsgspecError):
        msgspec.json.decode(b"{}", type=McpConfigure)
    with contextlib.suppress(msgspec.MsgspecError):
        msgspec.msgpack.decode(b"\x80", type=Boot)


def _tools() -> None:
    """Read a list of one tool up to the report of it."""
    page = tools.read_page(_LIST)
    entries = [hidden_entry(bytes(tool), Masks()) for tool in items(page.tools)]
    found = tools.read_tools(entries)
    encode(Capabilities(rows=found.rows, dropped=found.dropped))


async def _session() -> None:
    session: SdkSession

    def answer(line: bytes) -> None:
        frame = json.loads(line)
        result = _ANSWERS.get(frame.get("method", ""))
        if result is not None:
            reply = {"jsonrpc": "2.0", "id": frame["id"], "result": result}
            session.feed(json.dumps(reply).encode())

    session = SdkSession(answer, "0", Masks())
    async with asyncio.timeout(SECONDS):
        await session.initialize()
        await session.close(SECONDS)
