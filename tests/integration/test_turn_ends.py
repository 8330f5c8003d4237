"""How turns end with their agent: what is stopped in order says so, what is late is put right."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from turn_rig import Rig, refusal, rig

from interlock.bus.events import TextDelta, TurnCancelled, TurnCompleted
from interlock.bus.messages import CallReports, Revoke
from interlock.bus.records import CallReport
from interlock.supervisor.events.ports import WorkerView

T = "a" * 32
U = "b" * 32


def run(path: Path, story: Callable[[Rig], Awaitable[None]]) -> None:
    async def told() -> None:
        async with rig(path / "journal.sqlite3") as made:
            await story(made)

    asyncio.run(told())


def stopping(made: Rig, reason: str) -> None:
    """The agent drains."""
    made.runtime.views["agent:main"] = WorkerView(
        name="agent:main", kind="agent", state="STOPPING", generation=1, stopped_for=reason
    )
    made.turns.worker_changed("agent:main")


def test_a_turn_that_a_stopping_agent_gives_up_failed_and_was_not_cancelled(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        await made.start(T)
        await made.watch(T)
        stopping(made, "stopped by hand")
        made.items(T, TextDelta(text="half"), TurnCancelled())
        await made.until(made.ended)
        last = made.stream()[-1]
        assert (last["type"], last["code"]) == ("turn.failed", "agent_stopped")
        assert "stopped by hand" in last["message"] and "send the turn again" in last["message"]
        assert made.topics()[-1] == "turn.failed"

    run(tmp_path, story)


def test_the_death_of_its_agent_ends_a_turn_and_no_other_generation_gets_it(
    tmp_path: Path,
) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        made.server()
        await made.start(T)
        await made.watch(T)
        made.items(T, TextDelta(text="half"))
        made.turns.worker_gone("agent:main", 1, "killed by signal 9")
        made.agent("BACKOFF", 1)
        made.agent("READY", 2)
        made.items(T, TurnCompleted(text="from beyond"))
        made.items(T, TurnCompleted(text="from the next"), generation=2)
        await made.until(made.ended)
        assert [item["type"] for item in made.stream()] == ["text.delta", "turn.failed"]
        assert made.stream()[1]["code"] == "agent_died"
        assert "signal 9" in made.stream()[1]["message"]
        assert len(made.dispatches()) == 1
        assert len(made.runtime.messages("mcp:git", Revoke)) == 1

    run(tmp_path, story)


def test_turns_end_with_the_supervisor_and_say_so(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.agent()
        await made.start(T)
        await made.watch(T)
        stopping(made, "the supervisor stops")
        made.turns.stop()
        made.turns.worker_gone("agent:main", 1, "the supervisor stops")
        await made.turns.close()
        last = made.stream()[-1]
        assert (last["type"], last["code"]) == ("turn.failed", "supervisor_stopped")
        assert made.topics()[-1] == "turn.failed"

    run(tmp_path, story)


def test_a_waiting_turn_ends_when_the_supervisor_stops(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.agent("STARTING")
        await made.start(T)
        await made.watch(T)
        made.turns.stop()
        await made.turns.close()
        assert made.stream()[-1]["code"] == "supervisor_stopped"

    run(tmp_path, story)


def test_reports_that_come_after_the_death_correct_the_journal_alone(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.server()

        def report(call: str, outcome: str) -> None:
            one = CallReport(id=call, capability="git_log", turn=U, outcome=outcome)
            made.turns.on_call_reports("mcp:git", 1, CallReports(reports=(one,)))

        report("1", "")
        report("2", "")
        made.turns.worker_gone("mcp:git", 1, "killed by SIGKILL")
        report("2", "ok")
        report("3", "")
        told = made.topics("tool.")
        assert told == ["tool.started", "tool.started", "tool.failed", "tool.failed"]
        made.agent()
        await made.start(U)
        made.items(U, TurnCancelled())
        await made.until(lambda: "turn.cancelled" in made.topics())
        shown = await made.journal.calls(U)
        assert [(call.call, call.outcome, call.may_have_run) for call in shown] == [
            ("1", "worker_died", True),
            ("2", "ok", False),
            ("3", "worker_died", True),
        ]
        # The next generation is followed from its first call on.
        made.server(generation=2)
        one = CallReport(id="1", capability="git_log", outcome="")
        made.turns.on_call_reports("mcp:git", 2, CallReports(reports=(one,)))
        assert made.topics("tool.")[-1] == "tool.started"
        assert made.sequencer.replay("e1", 0)

    run(tmp_path, story)


def test_no_turn_is_taken_that_fits_neither_disk_nor_memory(tmp_path: Path) -> None:
    async def story(made: Rig) -> None:
        made.journal._bytes = 1 << 40
        made.journal.fix = "Free some space."
        error = await refusal(made.start(T))
        assert error.code == "overloaded" and error.message.endswith("Free some space.")
        made.journal._bytes = 0

    run(tmp_path, story)
