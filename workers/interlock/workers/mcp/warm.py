"""Warms a process image: one whole SDK session against a server that exists in memory only.

Afterwards everything that the SDK builds lazily is built, so that forks of the image share it. No
thread, process, socket or event loop is left.
"""

from __future__ import annotations

import asyncio
import codecs
import json
from typing import Any, Final

from interlock.workers.mcp import worker
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
SECONDS: Final = 20.0


def warm() -> None:
    """Import the kind and run the session.

    Raises WorkerError or TimeoutError if the SDK does not work here.
    """
    worker.kind()
    worker.own_version()
    codecs.lookup("ascii")
    asyncio.run(_session())


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
