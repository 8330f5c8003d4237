"""Plays the supervisor's side of one worker: real process, real sockets, no supervisor.

Workers are forked from the warm images that all tests of a run share, or executed.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import zmq
from worker_image import ForkedWorker, warm_images

from interlock.bus import messages as m
from interlock.bus import procfs
from interlock.bus.channel import CallAnswer, DataEdge
from interlock.bus.codec import decode_control_up, encode
from interlock.bus.records import Boot, CallReport, Target
from interlock.bus.settings import McpConfigure, McpServerSettings, Timing
from interlock.bus.socket import FdSocket, open_socket
from interlock.bus.tickets import TicketClaims, mint

KEY = b"k" * 32
ROGUE = str(Path(__file__).parent / "rogue" / "server.py")
M = TypeVar("M")


class WorkerRig:
    """One worker process and everything that it sent; use `running`."""

    def __init__(
        self,
        kind: str,
        name: str,
        *,
        executed: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="rig", dir="/tmp"))
        self.results = self.home / "results"
        self.log = self.home / "worker.log"
        self.endpoint = f"ipc://{self.home}/data.1"
        self.seen: list[m.ControlUp] = []
        self.bodies: list[bytes | None] = []
        self.logs: list[m.Log] = []
        self._news = asyncio.Event()
        self._ctx: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._identity = b""
        self._edge: DataEdge | None = None
        sock = open_socket(self._ctx, zmq.ROUTER)
        sock.bind(f"ipc://{self.home}/control")
        self._control = FdSocket(sock, self._received)
        boot = Boot(
            name=name,
            kind=kind,
            generation=1,
            nonce="n",
            token="secret-token",
            control=f"ipc://{self.home}/control",
            home=str(self.home),
            log=str(self.log),
            image="mcp" if kind == "mcp" else "base",
        )
        self.lifeline = -1
        self.process: subprocess.Popen[bytes] | ForkedWorker
        if executed or env:
            self.process = self._execute(boot, env or {})
        else:
            self.process = warm_images().spawn(boot)
        self.name, self.tree = name, [self.process.pid]
        self._handle = os.pidfd_open(self.process.pid)
        asyncio.get_running_loop().add_reader(self._handle, self._died)

    def _execute(self, boot: Boot, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        record = msgspec.msgpack.encode(boot)
        read, self.lifeline = os.pipe()
        os.write(self.lifeline, len(record).to_bytes(4, "big") + record)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "interlock.workers.host", str(read)],
            pass_fds=(read,),
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **env},
        )
        os.close(read)
        return process

    def send(self, message: m.ControlDown, body: bytes | None = None) -> None:
        header = encode(message)
        frames = [self._identity, header] if body is None else [self._identity, header, body]
        assert self._control.send(frames)

    async def expect(
        self, kind: type[M], accept: Callable[[M], bool] = lambda message: True, seconds: float = 20
    ) -> M:
        """Return the first message of that kind that is accepted, waiting for it."""
        async with asyncio.timeout(seconds):
            while True:
                for message in self.seen:
                    if isinstance(message, kind) and accept(message):
                        return message
                self._news.clear()
                await self._news.wait()

    def all(self, kind: type[M]) -> list[M]:
        return [message for message in self.seen if isinstance(message, kind)]

    async def configure(self, configure: msgspec.Struct) -> None:
        await self.expect(m.Hello)
        message = m.Configure(key=KEY, endpoint=self.endpoint)
        self.send(message, msgspec.json.encode(configure))

    async def call(
        self, tool: str, arguments: object = None, seconds: float = 20.0, cap: float | None = None
    ) -> CallAnswer:
        return await self.start_call(tool, arguments, seconds, cap)

    def start_call(
        self,
        tool: str,
        arguments: object = None,
        seconds: float = 20.0,
        cap: float | None = None,
        on_progress: Callable[[m.Progress], None] | None = None,
    ) -> asyncio.Future[CallAnswer]:
        edge = self.edge()
        body = arguments if isinstance(arguments, bytes) else json.dumps(arguments or {}).encode()
        return edge.call(tool, body, seconds, cap, on_progress)

    def edge(self) -> DataEdge:
        if self._edge is None:
            names = {row.name for caps in self.all(m.Capabilities) for row in caps.rows}
            claims = TicketClaims(
                id="t1",
                caller="agent:main",
                target=self.name,
                generation=1,
                names=(*names, "no_such_tool", "late"),
                turn="a" * 32,
                expires=time.time() + 59,
            )
            target = Target(
                worker=self.name,
                generation=1,
                endpoint=self.endpoint,
                ticket=mint(KEY, claims),
                expires_in=59,
            )
            self._edge = DataEdge(target, self.logs.append)
        return self._edge

    def reports(self) -> list[CallReport]:
        return [report for batch in self.all(m.CallReports) for report in batch.reports]

    async def report(self, capability: str, outcome: str) -> CallReport:
        """Wait for the report of a call's start (outcome "") or end."""

        def matches(report: CallReport) -> bool:
            return (report.capability, report.outcome) == (capability, outcome)

        batch = await self.expect(m.CallReports, lambda b: any(map(matches, b.reports)))
        return next(filter(matches, batch.reports))

    async def exit_code(self, seconds: float = 15) -> int:
        """Wait for the end of the worker."""
        async with asyncio.timeout(seconds):
            return await asyncio.to_thread(self.process.wait)

    def note_tree(self) -> list[procfs.Child]:
        """Return the processes below the worker now; `close` checks that they are gone."""
        found = procfs.descendants(self.process.pid)
        self.tree += [child.pid for child in found]
        return found

    def _died(self) -> None:
        """Tell the caller, as the supervisor does: a last answer may not have come through."""
        if self._handle >= 0:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1
        if self._edge is not None:
            self._edge.gone("the worker ended")

    def close_lifeline(self) -> None:
        """End the lifeline of an executed worker, as the death of the spawner does."""
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1

    async def close(self) -> list[int]:
        """Stop the worker and return the pids of its tree that are still there."""
        if self.process.poll() is None:
            self.note_tree()
            if self._identity:  # it may end by itself this moment
                self._control.send([self._identity, encode(m.Stop())])
        await self.exit_code()
        self._died()
        self._control.close()
        self.close_lifeline()
        self._ctx.term()
        left = [pid for pid in self.tree if (stat := procfs.stat(pid)) and stat.state != "Z"]
        shutil.rmtree(self.home)
        return left

    def _received(self, frames: list[bytes]) -> None:
        self._identity = frames[0]
        self.seen.append(decode_control_up(frames[1]))
        self.bodies.append(frames[2] if len(frames) > 2 else None)
        self._news.set()


def content(answer: CallAnswer) -> list[Any]:
    """Return the content items of a result."""
    assert answer.body is not None, answer
    items: list[Any] = json.loads(answer.body)["content"]
    return items


def text(answer: CallAnswer) -> str:
    """Return the text of a result's first item."""
    return str(content(answer)[0]["text"])


def read(path: str) -> str:
    """Return what is in a file."""
    return Path(path).read_text()


def rogue(*modes: str, **settings: Any) -> McpServerSettings:
    """Settings of a server that misbehaves as the modes say."""
    return McpServerSettings(command=sys.executable, args=(ROGUE, *modes), **settings)


@asynccontextmanager
async def running(
    settings: McpServerSettings,
    *,
    ready: bool = True,
    executed: bool = False,
    env: Mapping[str, str] | None = None,
    **timing: Any,
) -> AsyncIterator[WorkerRig]:
    """Run an mcp worker with those settings; afterwards nothing of it may be left.

    With an environment of its own it is executed; a forked one has that of the test run.
    """
    rig = WorkerRig("mcp", "mcp:rogue", executed=executed, env=env)
    try:
        await rig.configure(
            McpConfigure(
                server="rogue",
                settings=settings,
                folder=str(rig.home),
                results_folder=str(rig.results),
                timing=Timing(**timing),
            )
        )
        if ready:
            await rig.expect(m.Ready)
        yield rig
    finally:
        left = await rig.close()
    assert left == []
