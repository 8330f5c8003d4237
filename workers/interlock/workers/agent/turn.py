"""Runs one turn: the driver's events become items and calls, until the turn has one end."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from interlock.bus import events
from interlock.bus.channel import DataEdge
from interlock.bus.errors import TicketError, UnreachableError
from interlock.bus.messages import OfferUpdate, TurnDispatch
from interlock.bus.records import OfferRow, Target, Tier
from interlock.bus.tickets import peek
from interlock.bus.wording import spoken
from interlock.workers.agent import driver as drive
from interlock.workers.agent.cut import (
    Whole,
    arguments_problem,
    failure_body,
    shown_arguments,
    shown_result,
)
from interlock.workers.agent.edges import EdgePool, TurnTickets
from interlock.workers.agent.items import ItemSink
from interlock.workers.agent.offer import Offer
from interlock.workers.agent.tickets import TicketDesk
from interlock.workers.agent.wholes import Wholes

GRANT_PATIENCE: Final = 30.0
"""Seconds to wait for the right to a call outside the turn's tickets, while nobody is asked."""
_AT_ONCE: Final = 20
"""Calls of a step that are started in one turn of the loop."""

End = events.TurnCompleted | events.TurnFailed | events.TurnCancelled


@dataclass(frozen=True, slots=True)
class AgentView:
    """What the turns of an agent know of it."""

    name: str
    model: str
    max_steps: int
    driver: drive.Driver
    wholes: Wholes


class TurnRun:
    """One turn. `run` is called once; the other methods may be called while it runs."""

    def __init__(
        self,
        dispatch: TurnDispatch,
        text: str,
        agent: AgentView,
        sink: ItemSink,
        pool: EdgePool,
        desk: TicketDesk,
    ) -> None:
        self.turn = dispatch.turn
        self._dispatch = dispatch
        self._agent = agent
        self._sink = sink
        self._pool = pool
        self._desk = desk
        self._offer = Offer(dispatch.offer)
        self._context = drive.TurnContext(
            turn=dispatch.turn,
            session=dispatch.session,
            text=text,
            unattended=dispatch.unattended,
            offer=self._offer.rows,
        )
        self._untold: set[str] = set()
        """Ids of calls whose item was not put yet."""
        self._steps = 0
        self._said: list[str] = []
        self._tickets: TurnTickets | None = None
        self._clock: asyncio.Timeout | None = None
        self._parked = 0
        self._left = 0.0
        self._code: Literal["", "cancelled", "deadline"] = ""

    async def run(self) -> None:
        """Run the turn to its end; the last item put is its terminal one, whatever happens."""
        offered = max(self._dispatch.offered, len(self._offer.rows))
        agent = self._agent
        self._sink.put(events.TurnStarted(agent=agent.name, model=agent.model, offered=offered))
        end: End
        if self._code:
            # A timeout, even of no time, lets the work run until it waits: calls would be sent.
            end = self._early_end()
        else:
            try:
                seconds = self._dispatch.deadline_ms / 1000
                async with asyncio.timeout(seconds) as self._clock:
                    end = await self._work()
            except TimeoutError:
                end = self._early_end()
        self._sink.put(end)

    def _early_end(self) -> End:
        if self._code == "cancelled":
            return events.TurnCancelled()
        seconds = self._dispatch.deadline_ms / 1000
        text = f"The turn did not end within {spoken(seconds)} s; give it a longer --deadline."
        return events.TurnFailed(code="deadline", message=text)

    def cancel(self, code: Literal["cancelled", "deadline"]) -> None:
        """End the turn now; its calls in flight are cancelled at their servers."""
        if self._code:
            return
        self._code = code
        if self._clock is not None and not self._clock.expired():
            self._clock.reschedule(asyncio.get_running_loop().time())

    def update(self, update: OfferUpdate) -> None:
        """Take over a change of the offer."""
        self._offer.update(update.rows, update.removed)
        if self._tickets is not None:
            self._tickets.update(update.targets)

    def gone(self, worker: str, generation: int) -> None:
        """Forget the targets of a generation that ended."""
        if self._tickets is not None:
            self._tickets.gone(worker, generation)

    async def _work(self) -> End:
        async with asyncio.TaskGroup() as group:
            self._tickets = TurnTickets(self.turn, self._pool, self._desk, group)
            self._tickets.update(self._dispatch.targets)
            calls: list[asyncio.Task[None]] = []
            end: End | None = None
            async with aclosing(self._agent.driver.run(self._context)) as stream:
                async for event in stream:
                    if isinstance(event, drive.ToolCalls):
                        end = await self._step(event, group, calls)
                    else:
                        end = await self._tell(event)
                    if end is not None:
                        break
            for call in calls:
                call.cancel()
            self._tickets.close()
        return end or events.TurnFailed(code="bad_turn", message="The agent gave no answer.")

    async def _tell(self, event: drive.DriverEvent) -> End | None:
        """Put the item of a driver's event; returns the turn's end if the event is one."""
        match event:
            case drive.TextDelta(text):
                self._said.append(text)
                self._sink.put(events.TextDelta(text=text))
            case drive.Usage(read, written):
                self._sink.put(events.Usage(input_tokens=read, output_tokens=written))
            case drive.OwnToolCall(call, capability, arguments):
                self._sink.put(events.ToolCall(id=call, capability=capability, arguments=arguments))
            case drive.OwnToolResult(call, outcome):
                await self._told(call, call, outcome)
            case drive.Done(text):
                return events.TurnCompleted(text="".join(self._said) if text is None else text)
            case drive.Error(code, message):
                return events.TurnFailed(code=code, message=message)
            case _:
                pass
        return None

    async def _step(
        self,
        step: drive.ToolCalls,
        group: asyncio.TaskGroup,
        calls: list[asyncio.Task[None]],
    ) -> End | None:
        """Start the calls of a step, or end the turn if it is one too many."""
        self._steps += 1
        limit = self._agent.max_steps
        if self._steps > limit:
            return events.TurnFailed(
                code="max_steps",
                message=f"The turn wanted more than {limit} steps; "
                f"raise max_steps under [agents.{self._agent.name}].",
            )
        calls[:] = [call for call in calls if not call.done()]
        for place, request in enumerate(step.calls, start=1):
            if place % _AT_ONCE == 0:
                await asyncio.sleep(0)  # to find what names mean takes time; others have their turn
            request.problem = request.problem or arguments_problem(request.arguments)
            row = self._offer.find(request.name)
            self._untold.add(request.id)
            if isinstance(row, OfferRow):
                self._show(request, row)
            calls.append(group.create_task(self._call(request, row)))
        return None

    def _show(
        self, request: drive.ToolRequest, row: OfferRow | None = None, tier: Tier = "monitor"
    ) -> None:
        """Put the item of a call, once, with the name and the tier of its row where that is known.

        Of a name outside the offer the supervisor's answer tells them.
        """
        if request.id not in self._untold:
            return
        self._untold.discard(request.id)
        self._sink.put(
            events.ToolCall(
                id=request.id,
                capability=row.name if row else request.name,
                arguments=shown_arguments(request.arguments, not request.problem),
                tier=row.tier if row else tier,
            )
        )

    async def _call(self, request: drive.ToolRequest, row: OfferRow | tuple[str, ...]) -> None:
        """Run one call and tell its outcome, also when the turn ends before it."""
        started = asyncio.get_running_loop().time()
        try:
            outcome = await self._outcome(request, row)
        except asyncio.CancelledError:
            spent = (asyncio.get_running_loop().time() - started) * 1000
            text = "The turn ended during the call. It may have run."
            if not request.sent:
                text = "The turn ended before the call."
            outcome = _failure("cancelled", text, spent)
            self._show(request)
            self._sink.put(_result_item(request.id, outcome, shown_result(outcome.body)))
            request.result.cancel()
            raise
        self._show(request)
        try:
            whole = await self._told(request.id, request.name, outcome)
        except asyncio.CancelledError:
            request.result.cancel()
            raise
        if not request.result.done():
            request.result.set_result(replace(outcome, whole=whole) if whole else outcome)

    async def _told(self, call: str, tool: str, outcome: drive.Outcome) -> str:
        """Put the item of a result, once its whole is kept; also if the turn ends before that.

        Returns the path of the whole, if the item has only the beginning.
        """
        try:
            shown, whole = await self._agent.wholes.shown(outcome.body, tool)
        except asyncio.CancelledError:
            ended = shown_result(outcome.body, Whole(problem="the turn ended first"))
            self._sink.put(_result_item(call, outcome, ended))
            raise
        self._sink.put(_result_item(call, outcome, shown))
        return whole

    async def _outcome(
        self, request: drive.ToolRequest, row: OfferRow | tuple[str, ...]
    ) -> drive.Outcome:
        if request.problem:
            return _failure("invalid_arguments", f"{request.name}: {request.problem}.")
        assert self._tickets is not None
        try:
            if isinstance(row, OfferRow) and not row.per_call:
                outcome = await self._held(request, row)
                if outcome is not None:
                    return outcome
            return await self._outside(request, row)
        except (TicketError, UnreachableError) as error:
            return _failure(error.code, error.message)

    async def _held(self, request: drive.ToolRequest, row: OfferRow) -> drive.Outcome | None:
        """Call under the turn's ticket; None if it holds none that is good for that."""
        assert self._tickets is not None
        way = await self._tickets.open(row.worker, row.timeout)
        if way is None:
            return None
        outcome = await _ask(*way, row, request)
        request.sent = outcome.outcome != "denied"
        # Refused, so not run: policy may have changed, and the supervisor knows what holds now.
        return None if outcome.outcome == "denied" else outcome

    async def _outside(
        self, request: drive.ToolRequest, row: OfferRow | tuple[str, ...]
    ) -> drive.Outcome:
        """Ask the supervisor for the right to one call that no held ticket covers."""
        name = row.name if isinstance(row, OfferRow) else request.name
        near = () if isinstance(row, OfferRow) else row
        parked = False

        def on_parked(approval: str) -> None:
            nonlocal parked
            parked = True
            self._show(request, tier="ask")
            self._sink.put(events.ApprovalWaiting(id=approval))
            self._pause(True)

        try:
            grant = await self._desk.ask(
                self.turn,
                capability=name,
                arguments=request.arguments,
                patience=GRANT_PATIENCE,
                on_parked=on_parked,
            )
        finally:
            if parked:
                self._pause(False)
        self._show(request, grant.row if grant is not None else None)
        if grant is None:
            return _failure("unavailable", f"{name}: the supervisor did not answer.")
        if grant.row is None or grant.target is None:
            return _refusal(name, grant.code or "unavailable", grant.message, near)
        if not peek(grant.target.ticket).single_use:
            # Found by the turn itself: from now on it belongs to the turn like the rest.
            self._offer.update((grant.row,))
            assert self._tickets is not None
            self._tickets.update((grant.target,))
        return await self._lent(grant.row, grant.target, request)

    def _pause(self, on: bool) -> None:
        """Stop the turn's clock while a call of it waits for a person, or let it run again."""
        self._parked += 1 if on else -1
        clock, now = self._clock, asyncio.get_running_loop().time()
        if clock is None or clock.expired() or self._code:
            return
        if on and self._parked == 1:
            self._left = (clock.when() or now) - now
            clock.reschedule(None)
        elif not on and self._parked == 0:
            clock.reschedule(now + self._left)

    async def _lent(
        self, row: OfferRow, target: Target, request: drive.ToolRequest
    ) -> drive.Outcome:
        assert self._tickets is not None
        way = self._tickets.lend(target)
        if way is None:
            return _failure("worker_died", f"{row.worker} ended before the call reached it.")
        return await _ask(*way, row, request)


async def _ask(
    edge: DataEdge, ticket: str, row: OfferRow, request: drive.ToolRequest
) -> drive.Outcome:
    """Make one call over a connection. Cancelling this tells the server."""
    request.sent = True
    answer = await edge.call(
        row.local, request.arguments, row.timeout, row.timeout_max, ticket=ticket
    )
    if answer.body is None:
        message = answer.message or f"the call ended as {answer.outcome}"
        if answer.may_have_run and "may have run" not in message:
            message = f"{message.rstrip('.')}. It may have run."
        return _failure(answer.outcome, message, answer.duration_ms)
    return drive.Outcome(answer.outcome, answer.body, answer.message, answer.duration_ms)


def _refusal(name: str, code: str, message: str, near: tuple[str, ...]) -> drive.Outcome:
    """Return the outcome of a name that may not be called, with what it may have meant."""
    text = message or f"{name}: {code.replace('_', ' ')}."
    near = tuple(one for one in near if one not in text)
    if code == "not_found" and near:
        text = f"{text.rstrip()} Close names: {', '.join(near)}."
    failure = _failure(code, text)
    return drive.Outcome(code, failure.body, text, candidates=near)


def _failure(code: str, message: str, duration_ms: float = 0.0) -> drive.Outcome:
    return drive.Outcome(code, failure_body(message), message, duration_ms)


def _result_item(call: str, outcome: drive.Outcome, shown: tuple[Any, Any]) -> events.ToolResult:
    content, structured = shown
    return events.ToolResult(
        id=call,
        outcome=outcome.outcome,
        content=content,
        structured=structured,
        duration_ms=round(outcome.duration_ms, 3),
    )
