"""Servers that go wrong in a call."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_rig import FaultRig, assert_gone, outcomes, until
from supervised import rogue_toml

LARGE = 20_000_000


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultRig]:
    with FaultRig(tmp_path_factory.mktemp("calls"), circuit_open=0.3) as running:
        yield running


def test_a_slow_call_times_out_unless_it_reports_progress(rig: FaultRig) -> None:
    """A call ends at its deadline; progress renews it, up to the cap."""
    with rig.faulty(rogue_toml("x", call_timeout=2.0, call_timeout_max=4.0)) as interlock:
        rig.event("worker.ready", "mcp:x")
        place = interlock.mark()
        slow = rig.start(lambda client: client.call("mcp:x/sleep", {"seconds": 5}))
        told: list[float] = []
        alive = rig.start(
            lambda client: client.call(
                "mcp:x/sleep",
                {"seconds": 3, "progress": 0.5},
                on_progress=lambda news: told.append(news.progress),
            )
        )
        capped = rig.start(lambda client: client.call("mcp:x/sleep", {"seconds": 9, "progress": 1}))
        both = "mcp:x/sleep {seconds} & mcp:x/sleep {progress} & mcp:x/echo {{}}".format(
            seconds='{"seconds": 5}', progress='{"seconds": 3, "progress": 0.5}'
        )
        turn = rig.start(lambda client: list(client.turn(both)))
        results = {"slow": slow.result(20), "alive": alive.result(20), "capped": capped.result(20)}
        assert {name: one.outcome for name, one in results.items()} == {
            "slow": "timeout",
            "alive": "ok",
            "capped": "timeout",
        }
        assert 1900 < results["slow"].duration_ms < 4500
        assert 2900 < results["alive"].duration_ms and len(told) >= 4
        assert 3900 < results["capped"].duration_ms < 8000
        items = turn.result(20)
        ended = {one["id"]: one for one in items if one["type"] == "tool.result"}
        assert [ended[f"call_{n}"]["outcome"] for n in (1, 2, 3)] == ["timeout", "ok", "ok"]
        assert 1900 < ended["call_1"]["duration_ms"] < 4500
        failed = interlock.wait_event("tool.failed", "mcp:x", place)
        assert failed["code"] == "timeout"
        assert interlock.worker("mcp:x")["state"] == "READY"


def test_a_mute_server_opens_its_circuit_and_comes_back(rig: FaultRig) -> None:
    """Timeouts in a row take a server out of use, and an answer takes it back in."""
    with rig.faulty(rogue_toml("x", call_timeout=0.3)) as interlock:
        rig.event("worker.ready", "mcp:x")
        place = interlock.mark()
        turn = interlock.client.turn("mcp:x/mute {} & mcp:x/mute {} & mcp:x/mute {}")
        assert outcomes(list(turn)) == ["timeout"] * 3
        # A call that came late to its server, on a busy machine, says nothing about that.
        until(lambda: interlock.client.call("mcp:x/mute").outcome == "unavailable")
        degraded = interlock.wait_event("worker.degraded", "mcp:x", place)
        assert "circuit open" in degraded["reason"]
        interlock.wait_event("worker.ready", "mcp:x", place)
        assert interlock.client.call("mcp:x/echo").outcome == "ok"


def test_a_stopped_server_process_ends_its_calls_in_time_and_dies_with_its_worker(
    rig: FaultRig,
) -> None:
    """A server under SIGSTOP costs its callers their deadline, and does not survive a restart."""
    with rig.faulty(rogue_toml("x", "grandchild", call_timeout=0.5)) as interlock:
        rig.event("worker.ready", "mcp:x")
        tree = rig.tree("mcp:x", 2)
        os.kill(tree[0].pid, signal.SIGSTOP)
        begun = time.monotonic()
        assert interlock.client.call("mcp:x/echo").outcome == "timeout"
        assert time.monotonic() - begun < 3
        assert interlock.client.control("restart", "mcp:x")["state"] == "READY"
        assert_gone(tree)
        assert interlock.client.call("mcp:x/echo").outcome == "ok"


def test_a_stopped_server_process_is_named_with_what_lets_it_go_on(rig: FaultRig) -> None:
    """A server under SIGSTOP: its row says so, and it works again once it is continued."""
    with rig.faulty(rogue_toml("x", call_timeout=0.3)) as interlock:
        rig.event("worker.ready", "mcp:x")
        (server,) = rig.tree("mcp:x", 1)
        place = interlock.mark()
        os.kill(server.pid, signal.SIGSTOP)
        until(lambda: interlock.client.call("mcp:x/echo").outcome == "unavailable")
        degraded = interlock.wait_event("worker.degraded", "mcp:x", place)
        assert f"process {server.pid} is stopped, `kill -CONT {server.pid}`" in degraded["reason"]
        (row,) = interlock.attention("mcp:x")
        assert row["message"] == degraded["reason"]
        assert "interlock restart mcp:x" in row["fix"]
        os.kill(server.pid, signal.SIGCONT)
        interlock.wait_event("worker.ready", "mcp:x", place)
        assert interlock.client.call("mcp:x/echo").outcome == "ok"
        assert interlock.attention("mcp:x") == []


def test_a_server_that_is_stopped_while_it_is_out_of_use_is_named_then(rig: FaultRig) -> None:
    """The row follows what stands still, and counts of calls alone are told to nobody."""
    with rig.faulty(rogue_toml("x", "mute_ping", call_timeout=0.3)) as interlock:
        rig.event("worker.ready", "mcp:x")
        (server,) = rig.tree("mcp:x", 1)
        place = interlock.mark()
        turn = interlock.client.turn("mcp:x/mute {} & mcp:x/mute {} & mcp:x/mute {}")
        assert outcomes(list(turn)) == ["timeout"] * 3
        # A call that came late to its server, on a busy machine, says nothing about that.
        until(lambda: interlock.client.call("mcp:x/mute").outcome == "unavailable")
        degraded = interlock.wait_event("worker.degraded", "mcp:x", place)
        assert "is stopped" not in degraded["reason"]
        os.kill(server.pid, signal.SIGSTOP)
        interlock.wait_for(
            lambda event: (
                event["topic"] == "worker.degraded"
                and f"kill -CONT {server.pid}" in event["reason"]
            ),
            place,
        )
        os.kill(server.pid, signal.SIGCONT)


@pytest.mark.parametrize("how", ['{"code": 9}', '{"signal": 9}', '{"signal": 11}', "close"])
def test_a_server_that_ends_in_a_call_is_replaced(rig: FaultRig, how: str) -> None:
    """Calls at a server that dies, or closes its output, end at once as worker_died."""
    words = {
        '{"code": 9}': "exited with status 9",
        '{"signal": 9}': "killed by SIGKILL",
        '{"signal": 11}': "killed by SIGSEGV",
        "close": "closed its output",
    }
    # A process that holds the other end open hides that output was closed, but no death.
    offspring = () if how == "close" else ("grandchild", "grandchild_session")
    with rig.faulty(rogue_toml("x", *offspring)) as interlock:
        ready = rig.event("worker.ready", "mcp:x")
        tree = rig.tree("mcp:x", 1 + len(offspring))
        place = interlock.mark()
        waiting = rig.start(lambda client: client.call("mcp:x/sleep", {"seconds": 60}))
        interlock.wait_event("tool.started", capability="mcp:x/sleep", after=place)
        last = "mcp:x/close_stdout {}" if how == "close" else f"mcp:x/crash {how}"
        assert outcomes(list(interlock.client.turn(last))) == ["worker_died"]
        ended = waiting.result(10)
        assert (ended.outcome, ended.may_have_run) == ("worker_died", True)
        backoff = interlock.wait_event("worker.backoff", "mcp:x", place)
        assert words[how] in backoff["reason"]
        again = interlock.wait_event("worker.ready", "mcp:x", place)
        assert again["generation"] == ready["generation"] + 1
        assert_gone(tree)
        assert interlock.client.call("mcp:x/echo").outcome == "ok"


def test_rubbish_beside_an_answer_does_not_harm_it(rig: FaultRig) -> None:
    """Text that is not UTF-8, lines that are no JSON, wrong and double ids lose no call."""
    with rig.faulty(rogue_toml("x", "noise", "reverse")) as interlock:
        rig.event("worker.ready", "mcp:x")
        lines = [
            "mcp:x/not_utf8 {} & mcp:x/garbage {} & mcp:x/twice {}",
            'mcp:x/long_line {"bytes": 3000000} & mcp:x/unknown_fields {}',
            "mcp:x/twice {} & mcp:x/echo {}",
        ]
        assert outcomes(list(interlock.client.turn("\n".join(lines)))) == ["ok"] * 7
        text = interlock.client.call("mcp:x/not_utf8").content[0]["text"]
        assert text.startswith("a�") and text.endswith("b")
        assert interlock.client.call("mcp:x/bad_result").outcome == "unavailable"
        assert interlock.client.call("mcp:x/rpc_error").outcome == "tool_error"
        assert interlock.client.call("mcp:x/fail").outcome == "tool_error"
        row = interlock.worker("mcp:x")
        assert (row["state"], row["restarts"]) == ("READY", 0)


def test_an_answer_of_20_mb_on_one_line_is_passed_on_or_cut(rig: FaultRig) -> None:
    """A huge line costs its own call some time; over max_result it is cut and kept whole."""
    tables = (rogue_toml("whole", max_result="32MiB"), rogue_toml("cut"))
    with rig.faulty(*tables) as interlock:
        for name in ("mcp:whole", "mcp:cut"):
            rig.event("worker.ready", name)
        size = {"bytes": LARGE}
        whole = rig.start(lambda client: client.call("mcp:whole/big", size))
        small = rig.start(lambda client: client.call("mcp:whole/echo", timeout=5))
        cut = rig.start(lambda client: client.call("mcp:cut/big", size))
        turn = rig.start(lambda client: list(client.turn(f'mcp:cut/big {{"bytes": {LARGE}}}')))
        assert small.result(20).outcome == "ok"
        got = whole.result(30)
        assert got.outcome == "ok" and len(got.content[0]["text"]) == LARGE
        shortened = cut.result(30)
        assert shortened.outcome == "ok"
        path = Path(shortened.content[-1]["text"])
        assert path.is_relative_to(interlock.home.path) and path.stat().st_size == LARGE
        assert len(shortened.content[0]["text"]) < 9 << 20
        items = turn.result(30)
        assert outcomes(items) == ["ok"]
        assert sum(len(str(item)) for item in items) < 1 << 20
