"""Calls of one command-line tool's worker beside each other."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from worker_rig import WorkerRig, text

from interlock.bus import messages as m
from interlock.bus.settings import CliConfigure, CliToolSettings


@asynccontextmanager
async def shell(**settings: object) -> AsyncIterator[WorkerRig]:
    """Run the worker of a tool that is a shell; afterwards nothing of it may be left."""
    rig = WorkerRig("cli", "cli:sh")
    try:
        configured = CliToolSettings(command="/bin/sh", args=("-c",), **settings)  # type: ignore[arg-type]
        await rig.configure(
            CliConfigure(
                tool="sh",
                settings=configured,
                folder=str(rig.home),
                results_folder=str(rig.results),
            )
        )
        await rig.expect(m.Ready)
        yield rig
    finally:
        left = await rig.close()
    assert left == []


async def line(fifo: Path) -> str:
    """Wait for what a program writes into a named pipe."""
    async with asyncio.timeout(20):
        return await asyncio.to_thread(fifo.read_text)


def test_the_end_of_one_call_leaves_a_program_alone_that_started_meanwhile(tmp_path: Path) -> None:
    async def scenario() -> None:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        stubborn = f"trap 'echo asked >{fifo}' TERM; echo runs >{fifo}; "
        stubborn += "while :; do sleep 0.05; done"
        async with shell() as rig:
            first = rig.start_call("sh", {"args": [stubborn]})
            assert await line(fifo) == "runs\n"
            first.cancel()
            assert await line(fifo) == "asked\n"
            # Alone until now; SIGKILL follows half a second later.
            second = await rig.call("sh", {"args": ["sleep 1; echo fine"]})
            assert (second.outcome, text(second)) == ("ok", "fine")
            await rig.report("sh", "cancelled")

    asyncio.run(scenario())
