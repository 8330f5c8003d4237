"""Workers that say more, or other things, than is true: nobody else notices it.

Promise: a worker that floods or lies harms nobody but itself.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from breaking import GOOD, Busy, innocent
from fault_rig import until
from supervised import PATIENCE, Supervised, rogue_toml, timing

from interlock.bus import connect, procfs
from interlock.bus import messages as m

TESTS = Path(__file__).parent.parent
DONE = """
    host.send(m.Notice(code="done", message="all is said"))
"""
BEGIN = """
import asyncio
from interlock.bus import messages as m
from interlock.bus.records import CallReport, CapabilityReport, Child

async def say(host, message, body=None):
    socket = host._control._socket
    while not host.send(message, body):  # no room in the queue
        room = asyncio.Event()
        socket._on_writable, socket.want_writable = room.set, True
        await room.wait()
        socket.want_writable = False

async def lie(host):
"""


class Liar:
    """A supervisor with a healthy part and with `mcp:liar`, which says what it is told to."""

    def __init__(self, folder: Path) -> None:
        self.lies = folder / "lies.py"
        environ = {"PYTHONPATH": str(TESTS / "lying"), "LIES": str(self.lies)}
        config = timing() + GOOD + rogue_toml("liar", "grandchild")
        self.interlock = Supervised(folder, config, environ=environ)
        self.before: dict[str, Any] = {}
        """The row of the liar when the test under way began."""

    def lie(self, text: str) -> None:
        """Have the liar say it, and return when the supervisor heard the last word of it."""
        self.lies.write_text(BEGIN + text + DONE)
        os.kill(self.interlock.worker("mcp:liar")["pid"], signal.SIGUSR2)
        until(lambda: "done" in self.codes(), PATIENCE, "the last word")

    def more(self, count: str) -> int:
        """By how much that count of the liar has grown since the test began."""
        return int(self.interlock.worker("mcp:liar")[count] - self.before[count])

    def codes(self) -> list[str]:
        """Codes of the rows about the liar under needs attention."""
        return [row["code"] for row in self.interlock.attention("mcp:liar")]


@contextmanager
def running_liar(folder: Path) -> Iterator[Liar]:
    liar = Liar(folder)
    with liar.interlock as interlock:
        for name in ("agent:main", "mcp:good", "mcp:liar"):
            interlock.wait_state(name, "READY")
        yield liar


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Liar]:
    with running_liar(tmp_path_factory.mktemp("lying")) as liar:
        yield liar


@pytest.fixture
def liar(shared: Liar) -> Liar:
    """A liar that has said nothing yet: a new generation of it."""
    assert shared.interlock.client.control("restart", "mcp:liar")["state"] == "READY"
    until(lambda: shared.codes() == [], what="an end of what the last one said")
    shared.before = shared.interlock.worker("mcp:liar")
    return shared


def test_a_flood_of_calls_pushes_no_events_of_others_out(liar: Liar) -> None:
    """The last events of the others can be replayed although one worker makes up 15,000 calls."""
    interlock = liar.interlock
    before = status_of(liar)
    with Busy(interlock) as busy:
        liar.lie("""
    for number in range(0, 15_000, 50):
        reports = tuple(
            CallReport(id=str(number + n), capability="echo", caller="x", turn="",
                       outcome="ok", whole=True)
            for n in range(50)
        )
        await say(host, m.CallReports(reports=reports))
""")
        busy.wait(3)
    _check(liar, before, rows=0)
    assert liar.more("calls") >= 15_000


@pytest.mark.parametrize(
    "said",
    [
        'm.Notice(code="x", subject=str(n % 7), message=str(n), clear=n % 2 == 0)',
        'm.StateReport(state="DEGRADED" if n % 2 else "READY", reason=str(n))',
        "m.Children(children=(Child(pid=n + 2, start=1),))",
        'm.Capabilities(rows=(CapabilityReport(name=f"t{n}", digest="0" * 64),)), b"{}"',
    ],
    ids=["notices", "states", "children", "tools"],
)
def test_a_flood_of_reports_is_slowed_down(liar: Liar, said: str) -> None:
    """What a worker says of itself, over and over, is made known ten times a second at most."""
    before = status_of(liar)
    with Busy(liar.interlock) as busy:
        liar.lie(f"""
    for n in range(12_001):
        await say(host, {said})
""")
        busy.wait(3)
    _check(liar, before)


def status_of(liar: Liar) -> dict[str, object]:
    """The place in the events where a test begins."""
    return dict(liar.interlock.client.request(m.SnapshotGet))


def _check(liar: Liar, before: dict[str, object], rows: int = 1) -> None:
    """Whatever was said, others can be followed, and what was left out is counted and said."""
    interlock = liar.interlock
    replay = interlock.client.request(m.ReplayGet, epoch=before["epoch"], seq=before["seq"])
    replayed = replay["events"]
    mine = [event for event in replayed if event.get("name") == "mcp:liar"]
    assert len(mine) < 8_000
    others = [event for event in replayed if event.get("name") == "mcp:good"]
    assert others
    assert liar.codes().count("too_many_reports") == rows
    assert liar.more("left_out") > 5_000
    assert interlock.worker("mcp:good")["left_out"] == 0
    assert interlock.worker("mcp:liar")["state"] in ("READY", "DEGRADED")


def test_the_last_word_counts(liar: Liar) -> None:
    """Of rows that change faster than they may be told, the last state is what stands there."""
    liar.lie("""
    for n in range(3_001):
        await say(host, m.Notice(code="x", message=str(n)))
""")
    rows = {row["code"]: row["message"] for row in liar.interlock.attention("mcp:liar")}
    assert rows["x"] == "3000"


def tools_of(liar: Liar) -> set[str]:
    found = liar.interlock.client.tools()
    return {row["name"] for row in found["capabilities"] if "liar" in row["name"]}


def test_a_list_whose_documents_cannot_be_taken_is_refused_with_a_row(liar: Liar) -> None:
    """What is too much of a worker's documents is refused and told of; its tools stay."""
    before = tools_of(liar)
    assert before
    liar.lie("""
    row = CapabilityReport(name="other", digest="0" * 64)
    for body in (b"{" + b",".join(b'"%d":0' % n for n in range(2_000_000)) + b"}", b"[]"):
        for n in range(30):  # more than its quota, too
            await say(host, m.Capabilities(rows=(row,)), body)
""")
    until(lambda: "list_refused" in liar.codes(), PATIENCE, "the row")
    assert tools_of(liar) == before
    liar.interlock.wait_state("mcp:good", "READY")


def test_the_row_about_a_refused_list_goes_with_the_next_good_one(liar: Liar) -> None:
    """What stands under needs attention is true: a list that was taken is told of no more."""
    liar.lie("""
    row = CapabilityReport(name="bad", digest="0" * 64)
    await say(host, m.Capabilities(rows=(row,)), b"[]")
""")
    until(lambda: "list_refused" in liar.codes(), PATIENCE, "the row")
    liar.lie("""
    row = CapabilityReport(name="fresh", digest="0" * 64)
    await say(host, m.Capabilities(rows=(row,)), b"{}")
""")
    until(lambda: any("fresh" in name for name in tools_of(liar)), PATIENCE, "the good list")
    until(lambda: "list_refused" not in liar.codes(), PATIENCE, "the end of the row")


@pytest.mark.parametrize("letters", [0, 300_000], ids=["small", "large"])
def test_lists_of_many_documents_hold_nobody(liar: Liar, letters: int) -> None:
    """While a worker sends 400 MiB of documents, `status` is answered as if it were quiet."""
    slowest, over = [0.0], threading.Event()

    def ask() -> None:
        with connect(home=liar.interlock.home.path) as bus:
            while not over.is_set():
                begun = time.monotonic()
                bus.status()
                slowest[0] = max(slowest[0], time.monotonic() - begun)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            liar.lie(f"""
    document = '{{"a":"' + "x" * {letters} + '"}}'
    count = (30 << 20) // (len(document) + 70)
    rows = tuple(CapabilityReport(name=f"t{{n}}", digest="%064d" % n) for n in range(100))
    parts = (f'"{{n:064d}}":{{document}}' for n in range(count))
    body = ("{{" + ",".join(parts) + "}}").encode()
    for n in range(14):
        await say(host, m.Capabilities(rows=rows), body)
""")
        finally:
            over.set()
        asking.result()
    assert slowest[0] < 2
    liar.interlock.wait_state("mcp:good", "READY")


def test_processes_of_others_are_not_taken_for_its_own(tmp_path: Path) -> None:
    """A worker that names foreign processes as its own gets nobody killed, whatever dies next."""
    with running_liar(tmp_path) as liar:
        name_others_and_die(liar)


def name_others_and_die(liar: Liar) -> None:
    interlock = liar.interlock
    interlock.clean = False  # it is killed
    interlock.wait_for_children("mcp:liar", 2)
    good = interlock.worker("mcp:good")["children"][0]["pid"]
    records = interlock.home.processes
    with innocent() as process:
        foreign = [process.pid, os.getpid(), interlock.pid, good]
        named = [(pid, procfs.start_time(pid)) for pid in foreign]
        written = records.stat().st_mtime_ns
        liar.lie(f"""
    own = tuple(host._children._last)
    lies = tuple(Child(pid=pid, start=start) for pid, start in {named})
    await say(host, m.Children(children=own + lies))
""")
        until(lambda: records.stat().st_mtime_ns > written, what="the record")
        recorded = {child["pid"] for child in interlock.worker("mcp:liar")["children"]}
        assert len(recorded) >= 2 and not recorded & set(foreign)
        text = records.read_text()
        assert str(process.pid) not in text and str(os.getpid()) not in text
        interlock.client.close()
        interlock.stop(signal.SIGKILL)
        interlock.start()
        interlock.wait_state("mcp:liar", "READY")
