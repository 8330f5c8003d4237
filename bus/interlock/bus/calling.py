"""Calls of the synchronous client: resolve, call, and once more where that is safe."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, Literal, Protocol

import msgspec

from interlock.bus.codec import decode_as
from interlock.bus.edge import Edge, OnProgress
from interlock.bus.errors import OUTCOMES, UnreachableError
from interlock.bus.line import Line
from interlock.bus.messages import Gone, Reply, Resolve
from interlock.bus.records import Target
from interlock.bus.results import (
    CallResult,
    call_result,
    error_of,
    failed_call,
    refused_call,
)
from interlock.bus.routes import Route, Routes, worth_another

RESOLVE: Final = 10.0
"""Seconds that the supervisor has to answer `resolve`, besides the time of a person."""
PATIENCE: Final = 3600.0
"""Seconds that a call waits for a person where nothing is said; the supervisor ends it before."""
NEEDED: Final = "approval_needed"
RESTARTED: Final = "The worker was started again."
OnApproval = Callable[[str], bool | None]
"""Asked, with a sentence, when a person has to approve a call: yes, no, or None to wait for one."""

Way = Literal["park", "tell", "yes", "no"]


class Caller:
    """Routes and connections of one client; each ends with the generation that it leads to."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._routes = Routes()
        self._edges: dict[tuple[str, int], Edge] = {}
        line.on_gone = self._on_gone

    def resolve(
        self, capability: str, body: bytes, timeout: float, way: Way = "park", patience: float = 0.0
    ) -> tuple[Reply, bytes | None]:
        """Ask the supervisor where a capability is called; `body` holds the arguments."""
        fields = {"capability": capability, "approval": way, "patience": patience}
        return self._line.exchange(Resolve, body, timeout, fields)

    def call(
        self,
        capability: str,
        body: bytes,
        timeout: float | None,
        timeout_max: float | None,
        on_progress: OnProgress | None,
        on_approval: OnApproval | None = None,
    ) -> CallResult:
        """Call a capability and return how it ended; see `Client.call`."""
        # Since the last request a `gone` may have come; nobody reads while nobody waits.
        self._line.deliver_all()
        started = time.monotonic()
        kept = self._routes.find(capability, started)
        options = (timeout, timeout_max, on_progress, on_approval)
        result = self._attempt(capability, kept, body, *options)
        if worth_another(result.outcome, result.may_have_run, fresh=kept is None):
            self._routes.drop(capability)
            result = self._attempt(capability, None, body, *options)
        if result.duration_ms:
            return result
        elapsed = (time.monotonic() - started) * 1000
        return msgspec.structs.replace(result, duration_ms=elapsed)

    def forget(self) -> None:
        """Drop what belongs to a supervisor that is gone."""
        self._routes = Routes()
        for edge in self._edges.values():
            edge.close()
        self._edges.clear()

    def _attempt(
        self,
        capability: str,
        route: Route | None,
        body: bytes,
        timeout: float | None,
        timeout_max: float | None,
        on_progress: OnProgress | None,
        on_approval: OnApproval | None,
    ) -> CallResult:
        """Resolve where that is needed, and call once."""
        if route is None:
            reply, document = self.resolve(capability, body, RESOLVE, "tell")
            if reply.code == NEEDED:
                answer = on_approval(reply.message) if on_approval is not None else None
                way, patience = way_of(answer, timeout)
                reply, document = self.resolve(capability, body, patience + RESOLVE, way, patience)
            if reply.code != "ok":
                return refusal(capability, reply)
            route = decode_as(document or b"", Route)
            self._routes.keep(capability, route, time.monotonic())
        first = route.timeout if timeout is None else timeout
        latest = route.timeout_max if timeout_max is None else timeout_max
        try:
            edge = self._edge(route)
        except UnreachableError as error:
            return failed_call(route.capability, error.code, error.message)
        ending = edge.call(route, body, first, latest, on_progress)
        return result_of(route.capability, ending)

    def _edge(self, route: Route) -> Edge:
        key = (route.target.worker, route.target.generation)
        edge = self._edges.get(key)
        if edge is None:
            self._end_older(route.target)
            edge = self._edges[key] = Edge(self._line, route.target)
        return edge

    def _on_gone(self, message: Gone) -> None:
        self._end_generation(message.worker, message.generation, message.reason)

    def _end_older(self, target: Target) -> None:
        for worker, generation in older(target, self._edges):
            self._end_generation(worker, generation, RESTARTED)

    def _end_generation(self, worker: str, generation: int, reason: str) -> None:
        self._routes.gone(worker, generation)
        edge = self._edges.pop((worker, generation), None)
        if edge is not None:
            edge.gone(reason)


def older(target: Target, edges: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return what leads to older generations of a target's worker, by worker and generation.

    A newer generation proves the end of the older ones, should their `gone` be lost.
    """
    return [
        (worker, generation)
        for worker, generation in edges
        if worker == target.worker and generation < target.generation
    ]


def way_of(answer: bool | None, timeout: float | None) -> tuple[Way, float]:
    """Return what `resolve` is asked for after a person's answer, and how long one may take."""
    if answer is None:
        return "park", PATIENCE if timeout is None else timeout
    return "yes" if answer else "no", 0.0


def refusal(capability: str, reply: Reply) -> CallResult:
    """Return an answer to `resolve` that is an outcome; raise the error of any other."""
    if reply.code in OUTCOMES:
        return refused_call(capability, reply)
    raise error_of(reply)


class _Ended(Protocol):
    """How a call ended, as either client notes it."""

    @property
    def outcome(self) -> str: ...
    @property
    def body(self) -> bytes | None: ...
    @property
    def message(self) -> str: ...
    @property
    def duration_ms(self) -> float: ...
    @property
    def may_have_run(self) -> bool: ...


def result_of(capability: str, ending: _Ended) -> CallResult:
    """Return what the caller of a capability gets for how its call ended."""
    if ending.outcome in ("ok", "tool_error"):
        return call_result(capability, ending.outcome, ending.body, ending.duration_ms)
    return failed_call(
        capability,
        ending.outcome,
        ending.message,
        ending.duration_ms,
        may_have_run=ending.may_have_run,
    )
