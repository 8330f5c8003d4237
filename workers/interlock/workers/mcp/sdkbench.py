"""The SDK's own client against a stdio server: what `interlock bench` compares the bus with.

Executed as `python -P -m interlock.workers.mcp.sdkbench COMMAND...`. It reads one JSON request a
line, `{"calls": N, "size": BYTES, "width": W}`, makes the calls and answers with one line:
`{"p50_us": ..., "per_second": ...}`.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time

from mcp import Client, StdioServerParameters


async def serial(client: Client, calls: int, size: int) -> float:
    """Return the median duration of one call after another, in microseconds."""
    arguments = {"text": "x" * size}
    durations = []
    for _ in range(calls):
        started = time.perf_counter()
        await client.call_tool("echo", arguments)
        durations.append(time.perf_counter() - started)
    return statistics.median(durations) * 1e6


async def side_by_side(client: Client, calls: int, size: int, width: int) -> float:
    """Return calls per second with `width` calls under way."""
    arguments = {"text": "x" * size}

    async def lane() -> None:
        for _ in range(calls // width):
            await client.call_tool("echo", arguments)

    started = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(width)))
    return calls // width * width / (time.perf_counter() - started)


async def serve(command: list[str]) -> None:
    """Answer requests until standard input ends."""
    server = StdioServerParameters(command=command[0], args=command[1:])
    async with Client(server, mode="legacy", read_timeout_seconds=60) as client:
        await client.list_tools()
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            request = json.loads(line)
            calls, size, width = request["calls"], request["size"], request["width"]
            if width == 1:
                answer = {"p50_us": await serial(client, calls, size)}
            else:
                answer = {"per_second": await side_by_side(client, calls, size, width)}
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1:]))
