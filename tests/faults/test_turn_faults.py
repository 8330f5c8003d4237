"""Turns while something below, beside or above them ends."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from breaking import (
    GOOD,
    STUBBORN,
    Busy,
    Held,
    Watching,
    in_threads,
    popen,
    ready,
    run,
    until_stored,
)
from supervised import PATIENCE, Supervised, rogue_toml, timing
from zmtp import patiently

from interlock.bus.client import Client
from interlock.bus.watching import new_turn_id

OTHER = '[agents.other]\nmodel = "direct"\n'
SLEEP = "mcp:bad/sleep"
FOREVER = 'mcp:bad/echo {"a": 1}\nmcp:bad/sleep {"seconds": 600}'


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    config = timing() + GOOD + OTHER + rogue_toml("bad", *STUBBORN, concurrency=4)
    with Supervised(tmp_path_factory.mktemp("turns"), config) as running:
        yield running


@pytest.fixture(autouse=True)
def all_ready(interlock: Supervised) -> None:
    ready(interlock, "agent:main", "agent:other", "mcp:good", "mcp:bad")


def begin(interlock: Supervised, text: str, **options: object) -> Watching:
    """Start a turn of the agent that is about to be harmed."""
    turn = interlock.client.start_turn(text, agent="other", **options)["turn"]  # type: ignore[arg-type]
    return Watching(interlock, turn)


def test_a_connection_that_cannot_be_made_ends_one_call(interlock: Supervised) -> None:
    """Agent worker without a free descriptor: its call ends as unavailable, its turn goes on."""
    interlock.client.control("restart", "agent:other")
    ready(interlock, "agent:other")
    begin(interlock, 'mcp:good/echo {"a": 1}').join()
    pid = interlock.worker("agent:other")["pid"]
    used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    free = next(number for number in range(1 << 16) if number not in used)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        turn = begin(interlock, 'mcp:good/echo {"a": 2}\nmcp:bad/echo {"a": 3}')
        turn.join()
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    results = [item for item in turn.items if item["type"] == "tool.result"]
    assert [item["outcome"] for item in results] == ["ok", "unavailable"]
    assert "Too many open files" in results[1]["content"][0]["text"]
    assert turn.items[-1]["type"] == "turn.completed"
    again = begin(interlock, 'mcp:bad/echo {"a": 4}')
    again.join()
    assert [i["outcome"] for i in again.items if i["type"] == "tool.result"] == ["ok"]


def test_an_agent_killed_in_a_turn_ends_it_for_everybody(interlock: Supervised) -> None:
    """Agent worker killed in a turn: agent_died, all watchers end, the log stays readable."""
    with Busy(interlock):
        place = interlock.mark()
        first = begin(interlock, FOREVER)
        first.until("tool.result")
        turn = first.items[0]["turn"]
        second = Watching(interlock, turn, offset=2)
        second.until("tool.result")
        interlock.wait_event("tool.started", "mcp:bad", place, turn=turn, capability=SLEEP)
        os.kill(interlock.worker("agent:other")["pid"], signal.SIGKILL)
        assert (end := first.join()[-1])["type"] == "turn.failed" and end["code"] == "agent_died"
        assert second.join()[-1] == end
        interlock.wait_event("turn.failed", after=place, turn=turn, code="agent_died")
        assert list(interlock.client.watch(turn)) == first.items
        assert [item["offset"] for item in first.items] == list(range(len(first.items)))
        assert interlock.client.start_turn(FOREVER, agent="other", id=turn)["state"] == "failed"
        until_stored(interlock, turn, 2)
        calls = {call["capability"]: call for call in interlock.client.turn_show(turn)["calls"]}
        assert calls["mcp:bad/echo"]["outcome"] == "ok"
        ready(interlock, "agent:other")
        assert begin(interlock, 'mcp:good/echo {"a": 1}').join()[-1]["type"] == "turn.completed"


def test_a_turn_that_comes_while_its_agent_starts_waits_for_it(interlock: Supervised) -> None:
    """Turn while the agent is starting: accepted, then run; nobody has to try again."""
    place = interlock.mark()
    os.kill(interlock.worker("agent:other")["pid"], signal.SIGKILL)
    interlock.wait_event("worker.backoff", "agent:other", place)
    items = begin(interlock, 'mcp:good/echo {"a": 1}').join()
    assert items[-1]["type"] == "turn.completed"
    interlock.wait_event("turn.completed", after=place, turn=items[0]["turn"])


def test_of_a_call_that_was_cancelled_the_journal_says_that_it_may_have_run(
    interlock: Supervised, tmp_path: Path
) -> None:
    """A call that its server had when the turn was cancelled: what it did is not known."""
    held = Held(tmp_path, "mcp:bad")
    turn = interlock.client.start_turn(f"{held.text} & mcp:bad/echo {{}}", agent="other")["turn"]
    watching, place = Watching(interlock, turn), interlock.mark()
    watching.until("tool.result")
    interlock.client.turn_cancel(turn)
    watching.join()
    interlock.wait_event("tool.failed", "mcp:bad", place, code="cancelled")
    until_stored(interlock, turn, 2)
    found = {
        row["outcome"]: row["may_have_run"] for row in interlock.client.turn_show(turn)["calls"]
    }
    assert found == {"cancelled": True, "ok": False}
    held.let_go()


def test_a_killed_client_harms_nobody(interlock: Supervised) -> None:
    """A watcher that is killed: its turn and the other watchers go on, its place is freed."""
    turn = new_turn_id()
    text = "\n".join('mcp:bad/sleep {"seconds": 0.1}' for _ in range(8))
    descriptors = interlock.descriptors()
    client = popen(interlock.home.path, "turn", text, "--agent", "other", "--json", "--id", turn)
    interlock.spare(client.pid)
    with client, Busy(interlock):
        assert client.stdout is not None and client.stdout.readline()
        watching = Watching(interlock, turn)
        client.kill()
        assert watching.join()[-1]["type"] == "turn.completed"
    for _ in patiently():  # nothing tells when the last connection is closed
        if interlock.descriptors() <= descriptors:
            break


def test_the_same_id_is_the_same_turn(interlock: Supervised) -> None:
    """The same turn id again, also many times at once, is one turn that runs once."""
    turn, states = new_turn_id(), []

    def start() -> None:
        with Client(interlock.home.path) as client:
            text = 'mcp:bad/sleep {"seconds": 0.3}'
            states.append(client.start_turn(text, agent="other", id=turn)["turn"])

    place = interlock.mark()
    in_threads(*[start] * 8)
    assert states == [turn] * 8
    items = Watching(interlock, turn).join()
    assert [item["type"] for item in items].count("tool.call") == 1
    interlock.wait_event("turn.completed", after=place, turn=turn)
    started = [event for event in interlock.events[place:] if event["topic"] == "turn.started"]
    assert [event["turn"] for event in started] == [turn]


def test_cancel_and_deadline_end_what_runs(interlock: Supervised) -> None:
    """Cancel, and a deadline that passes, end a turn in a call that would never end."""
    with Busy(interlock):
        place = interlock.mark()
        cancelled = begin(interlock, FOREVER)
        cancelled.until("tool.result")
        turn = cancelled.items[0]["turn"]
        interlock.client.turn_cancel(turn)
        interlock.client.turn_cancel(turn)  # once more is harmless
        assert cancelled.join()[-1]["type"] == "turn.cancelled"
        interlock.wait_event("turn.cancelled", after=place, turn=turn)
        late = begin(interlock, FOREVER, deadline=0.5).join()[-1]
        assert (late["type"], late["code"]) == ("turn.failed", "deadline")
        interlock.wait_event("turn.failed", after=place, turn=late["turn"], code="deadline")
        code, _, _ = run(interlock.home.path, "turn", FOREVER, "--deadline", "0.5")
        assert code == 5


def test_a_stopped_agent_does_not_hold_a_deadline_up(interlock: Supervised) -> None:
    """Deadline of a turn whose agent hangs: the supervisor ends it in the agent's place."""
    with Busy(interlock):
        watching = begin(interlock, FOREVER, deadline=0.5)
        watching.until("tool.call")
        place = interlock.mark()
        os.kill(interlock.worker("agent:other")["pid"], signal.SIGSTOP)
        end = watching.join()[-1]
        assert (end["type"], end["code"]) in (
            ("turn.failed", "deadline"),
            ("turn.failed", "agent_died"),  # its pings ran out first
        )
        interlock.wait_event("worker.ready", "agent:other", place)


def test_a_server_restarted_in_a_turn_serves_the_rest_of_it(interlock: Supervised) -> None:
    """Target restarted in a turn: offer.update, and later calls run on the new generation."""
    with Busy(interlock):
        pids = []
        for harm in ("crash", "restart"):
            place, held = interlock.mark(), Held(interlock.config.parent, "mcp:good")
            text = 'mcp:bad/pid {}\nmcp:bad/sleep {"seconds": 600}\n'
            text += held.text + "\nmcp:bad/pid {}\nmcp:bad/pid {}"
            watching = begin(interlock, text)
            watching.until("tool.result")
            interlock.wait_event("tool.started", "mcp:bad", place, capability="mcp:bad/sleep")
            if harm == "crash":
                os.kill(interlock.worker("mcp:bad")["pid"], signal.SIGKILL)
            else:
                interlock.client.control("restart", "mcp:bad")
            interlock.wait_event("worker.ready", "mcp:bad", place)
            held.let_go()
            items = watching.join()
            assert items[-1]["type"] == "turn.completed", items
            outcomes = [item["outcome"] for item in items if item["type"] == "tool.result"]
            assert outcomes[0] == "ok" and outcomes[1] != "ok", items
            assert outcomes[2:] == ["ok", "ok", "ok"], items
            texts = [item["content"][0]["text"] for item in items if item["type"] == "tool.result"]
            assert texts[0] != texts[3] == texts[4]
            pids += [texts[0], texts[3]]
        assert pids[1] == pids[2]


def test_turns_are_watched_again_after_a_restart(tmp_path: Path) -> None:
    """A turn watched from 0 and from the middle after the supervisor came back (journal)."""
    with Supervised(tmp_path, timing() + GOOD, clean=False) as interlock:
        ready(interlock, "agent:main", "mcp:good")
        before = list(interlock.client.turn('mcp:good/echo {"a": 1}\nmcp:good/fail {}'))
        turn = before[0]["turn"]
        assert interlock.stop() == 0
        interlock.client.close()
        interlock.clean = True
        interlock.start()
        ready(interlock, "agent:main", "mcp:good")
        assert list(interlock.client.watch(turn)) == before
        assert list(interlock.client.watch(turn, 3)) == before[3:]
        assert list(interlock.client.watch(turn, 10_000)) == []
        threads = [threading.Thread(target=Watching(interlock, turn).join) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        again = interlock.client.start_turn('mcp:good/echo {"a": 1}', id=turn)
        assert again == {"turn": turn, "state": "completed"} | again
        assert [row["turn"] for row in interlock.client.turns()["turns"]] == [turn]
