"""What workers say on control, and who takes it."""

from __future__ import annotations

import time
from typing import Final

from interlock.bus import messages as m
from interlock.bus.errors import MalformedError
from interlock.bus.names import LOCAL_MARK
from interlock.bus.settings import McpServerSettings
from interlock.supervisor.attention import (
    MAX_TEXT,
    OWN_CODES,
    REFUSED_LIST,
    STATE,
    Attention,
    Row,
)
from interlock.supervisor.catalog.schemas import merge_lists
from interlock.supervisor.config.toolnotes import ToolNotes, left_out
from interlock.supervisor.control.pacing import Pacing
from interlock.supervisor.control.quotas import Quotas
from interlock.supervisor.events.turns import TurnService
from interlock.supervisor.fleet.fleet import TOOLS, Fleet
from interlock.supervisor.fleet.member import Member
from interlock.supervisor.fleet.pings import PingClock
from interlock.supervisor.lifecycle import inputs
from interlock.supervisor.lifecycle.states import UP, State
from interlock.supervisor.policy.tickets import TicketOffice

LAST_WORDS: Final = (m.WorkerFailed, m.CallReports)
"""What still counts when its sender is known to be dead."""
MAX_CODE: Final = 100
"""Characters of a code that a worker sends."""
MAX_TOOLS: Final = 50
"""Tools of one worker that needs attention names one by one."""


class Inbox:
    """Dispatches every control message of a proven worker; what it may not say is counted."""

    def __init__(
        self,
        fleet: Fleet,
        pings: PingClock,
        attention: Attention,
        turns: TurnService,
        tickets: TicketOffice,
        notes: ToolNotes,
        quotas: Quotas,
    ) -> None:
        self.dropped = 0
        self._fleet = fleet
        self._pings = pings
        self._attention = attention
        self._turns = turns
        self._tickets = tickets
        self._notes = notes
        self._quotas = quotas
        self._pacing = Pacing(self._deliver, quotas.leave_out, merge_lists)

    def received(
        self, name: str, generation: int, message: m.ControlUp, body: bytes | None
    ) -> None:
        """Take one message; `name` and `generation` are proven by its connection."""
        if self._speaker(name, generation, message) is None:
            self.dropped += 1
        else:
            self._pacing.take(name, generation, message, body)

    def forget(self, name: str) -> None:
        """That worker is in no configuration any more."""
        self._pacing.forget(name)
        self._quotas.forget(name)

    def close(self) -> None:
        """Take nothing more of what still waits for its turn."""
        self._pacing.close()

    def _speaker(self, name: str, generation: int, message: m.ControlUp) -> Member | None:
        """The worker in whose name this may be said now."""
        member = self._fleet.members.get(name)
        if member is None or member.worker.generation != generation:
            return None
        if member.told_gone >= generation and not isinstance(message, LAST_WORDS):
            return None  # it was on its way when its sender's death was settled
        return member

    def _deliver(
        self, name: str, generation: int, message: m.ControlUp, body: bytes | None
    ) -> None:
        member = self._speaker(name, generation, message)
        if member is None:
            self.dropped += 1
            return
        try:
            taken = (
                self._lifecycle(member, generation, message)
                or self._about_itself(member, generation, message)
                or self._of_an_agent(member, generation, message, body)
                or self._of_a_server(member, generation, message, body)
            )
        except MalformedError as error:
            taken = False
            if isinstance(message, m.Capabilities):
                self._refused_list(name, error)
        self.dropped += not taken

    def _lifecycle(self, member: Member, generation: int, message: m.ControlUp) -> bool:
        now = time.monotonic()
        event: inputs.Input
        match message:
            case m.Hello(pid=pid):
                event = inputs.HelloReceived(now=now, generation=generation, pid=pid)
            case m.Ready():
                if member.worker.state is not State.INITIALIZING:
                    return False
                member.server = message.server[:200]
                if message.endpoint and member.endpoint:
                    # The address is the one it was given, whatever it claims.
                    self._tickets.open_target(
                        member.worker.name, generation, member.key, member.endpoint
                    )
                event = inputs.ReadyReceived(now=now, generation=generation, tools=message.tools)
            case m.StateReport():
                member.degraded_code = message.code[:MAX_CODE]
                event = inputs.StateReceived(
                    now=now,
                    generation=generation,
                    degraded=message.state == "DEGRADED",
                    reason=message.reason[:MAX_TEXT],
                )
            case m.WorkerFailed():
                event = inputs.FailureReceived(
                    now=now,
                    generation=generation,
                    code=message.code[:MAX_CODE],
                    reason=message.reason[:MAX_TEXT],
                    fix=message.fix[:MAX_TEXT],
                    permanent=message.permanent,
                )
            case m.Drained():
                event = inputs.DrainedReceived(now=now, generation=generation)
            case _:
                return False
        self._fleet.feed(member.worker.name, event)
        return True

    def _about_itself(self, member: Member, generation: int, message: m.ControlUp) -> bool:
        name = member.worker.name
        match message:
            case m.Pong():
                self._pings.answered((name, generation))
                member.in_flight, member.queue = message.in_flight, message.queue
                member.dropped = message.dropped
            case m.Children():
                proven = self._fleet.launcher.record_children(name, generation, message.children)
                member.children = proven
            case m.Notice(subject=subject, code=code) if subject == STATE or code in OWN_CODES:
                return False  # these rows are the supervisor's own
            case m.Notice(clear=True):
                self._attention.clear(name, message.code, message.subject)
            case m.Notice():
                self._attention.set(
                    Row(
                        name=name,
                        code=message.code,
                        message=message.message,
                        fix=message.fix,
                        subject=message.subject,
                    )
                )
            case m.Revoked():
                self._turns.on_revoked(name, generation, message)
            case _:
                return False
        return True

    def _of_an_agent(
        self, member: Member, generation: int, message: m.ControlUp, body: bytes | None
    ) -> bool:
        if member.worker.kind != "agent":
            return False
        name = member.worker.name
        match message:
            case m.TurnItems():
                self._turns.on_items(name, generation, message, body)
            case m.TicketRequest():
                self._turns.on_ticket_request(name, generation, message, body)
            case m.SchemaGet():
                self._turns.on_schema_get(name, generation, message)
            case _:
                return False
        return True

    def _of_a_server(
        self, member: Member, generation: int, message: m.ControlUp, body: bytes | None
    ) -> bool:
        if member.worker.kind == "agent":
            return False
        name = member.worker.name
        match message:
            case m.CallReports():
                # What a dead process had under way was counted when its death was settled.
                late = member.told_gone >= generation
                member.metrics.add(one for one in message.reports if one.whole or not late)
                member.in_flight, member.queue = message.in_flight, message.queue
                self._turns.on_call_reports(name, generation, message)
            case m.ToolsFind() if member.worker.kind == "core":
                self._turns.on_tools_find(name, generation, message)
            case m.Capabilities() if member.worker.state in UP:
                self._turns.on_capabilities(name, message, body)
                self._attention.clear(name, REFUSED_LIST)
                count = _served(member, message)
                now = time.monotonic()
                self._fleet.feed(
                    name, inputs.ToolsReceived(now=now, generation=generation, tools=count)
                )
                self._attend_tools(name, message)
                names = [row.name for row in message.rows]
                self._notes.note(name, member.entry, message.dropped, names)
            case _:
                return False
        return True

    def _refused_list(self, name: str, error: MalformedError) -> None:
        self._attention.set(
            Row(
                name=name,
                code=REFUSED_LIST,
                message=f"A list of tools that {name} sent was not taken: {error.message} "
                "The one before it still counts.",
                fix=f"See `interlock logs {name}`, then `interlock restart {name}`.",
            )
        )

    def _attend_tools(self, name: str, message: m.Capabilities) -> None:
        rows = [
            Row(
                name=name,
                code=TOOLS,
                message=left_out(tool),
                fix=f"Report it to the makers of {name}; all its other tools work.",
                subject=tool.name,
            )
            for tool in message.dropped[:MAX_TOOLS]
        ]
        if len(message.dropped) > MAX_TOOLS:
            more = len(message.dropped) - MAX_TOOLS
            text = f"{more} more tools were mended or left out."
            rows.append(Row(name=name, code=TOOLS, message=text, fix=f"interlock logs {name}"))
        self._attention.replace(rows, lambda row: row.name != name or row.code != TOOLS)


def _served(member: Member, message: m.Capabilities) -> int:
    """How many tools a server has that its entry does not disable."""
    settings = member.entry.settings
    hidden = settings.disabled_tools if isinstance(settings, McpServerSettings) else ()
    return sum(LOCAL_MARK not in row.name and row.name not in hidden for row in message.rows)
