"""A turn service on a real journal, with the runtime around it held in plain tables."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from interlock.bus.errors import InterlockError
from interlock.bus.events import Event, Item, TurnCompleted, TurnStarted
from interlock.bus.messages import (
    ApiAnswer,
    Capabilities,
    ControlDown,
    Items,
    TurnDispatch,
    TurnItems,
    TurnStart,
    TurnWatch,
)
from interlock.bus.records import CapabilityReport
from interlock.bus.settings import AgentSettings, McpServerSettings, PolicySettings
from interlock.supervisor.api.offers import OfferApi
from interlock.supervisor.api.turns import TurnApi
from interlock.supervisor.catalog.rows import Catalog
from interlock.supervisor.catalog.schemas import Schemas
from interlock.supervisor.events.journal import Journal, JournalBounds
from interlock.supervisor.events.journalrows import UNFINISHED, TurnRow
from interlock.supervisor.events.ports import WorkerView
from interlock.supervisor.events.sequencer import Sequencer
from interlock.supervisor.events.turnlog import LogBounds, TurnLogs
from interlock.supervisor.events.turns import TurnService, TurnTimes
from interlock.supervisor.policy.desk import ApprovalDesk
from interlock.supervisor.policy.tickets import TicketOffice

KEY = b"k" * 32
T = "ab" * 16
"""Id of a turn."""
QUICK = TurnTimes(agent_wait=0.05, margin=0.02, grace=0.05, last_ends=0.2)


class Runtime:
    """The workers as a table, and everything that was sent to them."""

    def __init__(self) -> None:
        self.views: dict[str, WorkerView] = {}
        self.settings: dict[str, AgentSettings] = {"main": AgentSettings(model="direct")}
        self.rules = PolicySettings()
        self.sent: list[tuple[str, int, ControlDown, bytes | None]] = []
        self.full: set[str] = set()
        self.arrived = asyncio.Event()

    def view(self, worker: str) -> WorkerView | None:
        return self.views.get(worker)

    def agents(self) -> Mapping[str, AgentSettings]:
        return self.settings

    def unused(self, name: str) -> str:
        return ""

    def default_agent(self) -> str:
        return "main"

    def policy(self) -> PolicySettings:
        return self.rules

    def send(
        self, worker: str, generation: int, message: ControlDown, body: bytes | None = None
    ) -> bool:
        view = self.views.get(worker)
        if view is None or view.generation != generation or worker in self.full:
            return False
        self.sent.append((worker, generation, message, body))
        self.arrived.set()
        return True

    def messages(self, worker: str, kind: type[Any]) -> list[Any]:
        return [sent[2] for sent in self.sent if sent[0] == worker and isinstance(sent[2], kind)]


class Rig:
    """Everything of one supervisor's turns, for one test."""

    def __init__(self, path: Path, epoch: str, times: TurnTimes, bounds: LogBounds) -> None:
        self.notices: list[tuple[str, bool]] = []
        self.answers: list[tuple[bytes, ApiAnswer, bytes | None]] = []
        self.blocked: set[bytes] = set()
        self.changed = asyncio.Event()
        self.runtime = Runtime()
        self.sequencer = Sequencer(epoch)
        self.events: list[Event] = []
        self.sequencer.listen(self._on_event)
        self.journal = Journal(path, epoch, self._attention, JournalBounds(retry=0.05))
        self.logs = TurnLogs(self.journal, self._answer, bounds)
        self.catalog = Catalog()
        self.tickets = TicketOffice()
        self.turns = TurnService(
            workers=self.runtime,
            catalog=self.catalog,
            schemas=Schemas(),
            tickets=self.tickets,
            journal=self.journal,
            logs=self.logs,
            sequencer=self.sequencer,
            approvals=ApprovalDesk(self.journal, self.sequencer, self._attention),
            times=times,
        )
        self.api = TurnApi(self.turns)
        self.offers = OfferApi(self.turns)

    def _on_event(self, event: Event) -> None:
        self.events.append(event)
        self.changed.set()

    def _attention(self, code: str, message: str, fix: str, *, clear: bool = False) -> None:
        self.notices.append((code, clear))
        self.changed.set()

    def _answer(self, identity: bytes, message: ApiAnswer, body: bytes | None) -> bool:
        if identity in self.blocked:
            return False
        self.answers.append((identity, message, body))
        self.changed.set()
        return True

    async def until(self, condition: Callable[[], object], seconds: float = 5.0) -> None:
        """Wait until something that the rig records makes the condition true."""
        async with asyncio.timeout(seconds):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def agent(self, state: str = "READY", generation: int = 1, reason: str = "") -> None:
        """The agent `main` is in that state from now on."""
        self.runtime.views["agent:main"] = WorkerView(
            name="agent:main", kind="agent", state=state, reason=reason, generation=generation
        )
        self.turns.worker_changed("agent:main")

    def server(
        self,
        name: str = "git",
        tools: tuple[str, ...] = ("git_status", "git_log"),
        generation: int = 1,
        settings: McpServerSettings | None = None,
    ) -> None:
        """The server `name` becomes READY with those tools."""
        worker = f"mcp:{name}"
        self.turns.source_configured(worker, settings or McpServerSettings())
        reports, documents = [], {}
        for tool in tools:
            document = json.dumps({"name": tool}).encode()
            digest = hashlib.sha256(document).hexdigest()
            documents[digest] = msgspec.Raw(document)
            reports.append(CapabilityReport(name=tool, digest=digest, summary=f"Does {tool}."))
        body = msgspec.json.encode(documents)
        self.turns.on_capabilities(worker, Capabilities(rows=tuple(reports)), body)
        self.tickets.open_target(worker, generation, KEY, f"ipc:///run/{name}.{generation}")
        self.server_state(name, "READY", generation=generation)

    def server_state(self, name: str, state: str, reason: str = "", generation: int = 1) -> None:
        worker = f"mcp:{name}"
        self.runtime.views[worker] = WorkerView(
            name=worker, kind="mcp", state=state, reason=reason, generation=generation
        )
        self.turns.worker_changed(worker)

    async def start(self, turn: str, text: str = "mcp:git", **fields: Any) -> dict[str, Any]:
        message = TurnStart(id=1, key="", turn=turn, **fields)
        return dict(json.loads(await self.api.start(b"c", message, json.dumps(text).encode())))

    async def watch(
        self, turn: str, watch: int = 7, offset: int = 0, credit: int = 1000, who: bytes = b"c"
    ) -> None:
        message = TurnWatch(id=watch, key="", turn=turn, offset=offset, credit=credit)
        await self.api.watch(who, message, None)

    def items(self, turn: str, *items: Item, generation: int = 1) -> None:
        """The agent sends items."""
        body = msgspec.json.encode(items)
        self.turns.on_items("agent:main", generation, TurnItems(turn=turn), body)

    def stream(self, watch: int = 7, who: bytes = b"c") -> list[dict[str, Any]]:
        """All items that a watcher got, checked for gaps."""
        found: list[dict[str, Any]] = []
        for identity, message, body in self.answers:
            if identity == who and isinstance(message, Items) and message.id == watch:
                batch = json.loads(body or b"[]")
                assert len(batch) == message.count
                assert [item["offset"] for item in batch] == list(
                    range(message.offset, message.offset + message.count)
                )
                found += batch
        return found

    def ended(self, watch: int = 7, who: bytes = b"c") -> bool:
        return any(
            message.end
            for identity, message, _ in self.answers
            if identity == who and isinstance(message, Items) and message.id == watch
        )

    def topics(self, prefix: str = "turn.") -> list[str]:
        tags = [str(type(event).__struct_config__.tag) for event in self.events]
        return [tag for tag in tags if tag.startswith(prefix)]

    def dispatches(self) -> list[TurnDispatch]:
        return list(self.runtime.messages("agent:main", TurnDispatch))


@asynccontextmanager
async def rig(
    path: Path,
    epoch: str = "e1",
    times: TurnTimes = QUICK,
    bounds: LogBounds | None = None,
) -> AsyncIterator[Rig]:
    """A rig whose journal is open."""
    made = Rig(path, epoch, times, bounds or LogBounds(retry=0.01, patience=0.1))
    made.turns.interrupted(await made.journal.open())
    try:
        yield made
    finally:
        await made.turns.close()
        await made.journal.close()


async def refusal(awaitable: Any) -> InterlockError:
    """The error that a request ends with."""
    try:
        await awaitable
    except InterlockError as error:
        return error
    raise AssertionError("it was not refused")


def run(tmp_path: Path, story: Callable[[Rig], Awaitable[None]], **options: Any) -> None:
    """Tell a story on a rig of its own."""

    async def whole() -> None:
        async with rig(tmp_path / "j.sqlite3", **options) as made:
            await story(made)

    asyncio.run(whole())


async def finish(made: Rig, turn: str = T, text: str = "done") -> None:
    """The agent ends a turn well."""
    made.items(turn, TurnStarted(agent="main"), TurnCompleted(text=text))
    await made.until(lambda: turn not in {row.turn for row in live(made)})


def live(made: Rig) -> list[TurnRow]:
    """Turns that have not ended."""
    return [row for row in made.turns.rows() if row.state in UNFINISHED]
