"""Servers that cannot be started, or go wrong before or at their tool list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_rig import FaultRig, outcomes
from supervised import rogue_toml, server_toml

INIT = 1.5
"""Seconds that a mute server gets here."""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultRig]:
    with FaultRig(tmp_path_factory.mktemp("start"), failures=3) as running:
        yield running


def test_a_mute_server_costs_its_own_time_only(rig: FaultRig) -> None:
    """A server that never answers ends with its own init_timeout, and nothing waits for it."""
    tables = (
        rogue_toml("mute", "mute_init", "ignore_end", init_timeout=INIT),
        rogue_toml("listless", "mute_list", init_timeout=INIT),
        rogue_toml("later", "slow_init=0.3"),
    )
    with rig.faulty(*tables) as interlock:
        ready = rig.event("worker.ready", "mcp:later")
        for name in ("mcp:mute", "mcp:listless"):
            begun = rig.event("worker.initializing", name)
            refused = interlock.client.call(f"{name}/echo")
            assert refused.outcome in ("unavailable", "not_found")
            backoff = rig.event("worker.backoff", name)
            assert f"{INIT:g} s" in backoff["reason"]
            assert backoff["exit_code"] == 1
            assert INIT * 0.9 < backoff["time"] - begun["time"] < INIT + 5
            assert ready["time"] < backoff["time"] + 1


def test_a_crash_loop_ends_in_failed_and_a_start_tries_again(rig: FaultRig) -> None:
    """After the budget of failures a worker is FAILED, says why, and a start by hand retries."""
    tables = (
        rogue_toml("early", "exit_at_start=5"),
        rogue_toml("late", "exit_after_init"),
        rogue_toml("deaf", "close_stdout"),
    )
    reasons = {
        "early": ("status 5", "giving up at once"),
        "late": ("status 4",),
        "deaf": ("closed its output",),
    }
    with rig.faulty(*tables) as interlock:
        for name, words in reasons.items():
            failed = rig.event("worker.failed", f"mcp:{name}")
            assert "4 failures in 60 s" in failed["reason"]
            assert all(word in failed["reason"] for word in words), failed
            assert failed["exit_code"] == 1
            (row,) = interlock.attention(f"mcp:{name}")
            assert row["message"] == failed["reason"] and "interlock logs" in row["fix"]
        place = interlock.mark()
        row = interlock.client.control("start", "mcp:early")
        assert row["state"] in ("BACKOFF", "FAILED")
        again = interlock.wait_event("worker.failed", "mcp:early", place)
        assert again["generation"] == row["generation"] + (3 if row["state"] == "BACKOFF" else 0)


def test_a_server_that_breaks_the_handshake_says_what_was_wrong(rig: FaultRig) -> None:
    """Broken answers to initialize become one plain sentence, never a trace."""
    tables = (rogue_toml("shape", "bad_init"), rogue_toml("refuses", "init_error"))
    with rig.faulty(*tables):
        shape = rig.event("worker.backoff", "mcp:shape")
        assert "does not follow the protocol" in shape["reason"]
        refuses = rig.event("worker.backoff", "mcp:refuses")
        assert "no licence" in refuses["reason"]


def test_what_cannot_be_executed_fails_at_once_with_a_fix(rig: FaultRig, tmp_path: Path) -> None:
    """A missing or forbidden program fails its worker without retries and says what to do."""
    plain, script = tmp_path / "plain", tmp_path / "script"
    plain.write_text("no program")
    script.write_text("#!/no/such/shell\n")
    script.chmod(0o700)
    wanted = {
        "gone": ("no-such-program-at-all", "command_not_found", "command not found"),
        "lost": ("/no/such/program", "command_not_found", "/no/such/program"),
        "plain": (str(plain), "no_permission", "is no program"),
        "folder": (str(tmp_path), "no_permission", "is a folder"),
        "script": (str(script), "command_not_found", "command not found"),
    }
    with rig.faulty(*(server_toml(name, row[0]) for name, row in wanted.items())) as interlock:
        for name, (_, code, words) in wanted.items():
            failed = rig.event("worker.failed", f"mcp:{name}")
            assert words in failed["reason"], failed
            assert interlock.worker(f"mcp:{name}")["restarts"] == 0
            (row,) = interlock.attention(f"mcp:{name}")
            assert row["code"] == code and row["fix"]
            assert "chmod" not in row["fix"]
        plain.write_text("#!/bin/sh\nexit 3\n")
        plain.chmod(0o700)
        place = interlock.mark()
        interlock.client.control("start", "mcp:plain")
        assert "status 3" in interlock.wait_event("worker.backoff", "mcp:plain", place)["reason"]


def test_a_tool_without_a_schema_is_named_and_harms_no_other(rig: FaultRig) -> None:
    """Broken tools are mended or left out alone and stand under needs attention with a fix."""
    tables = (rogue_toml("x", "no_schema", "duplicates", "noise"),)
    with rig.faulty(*tables) as interlock:
        tools = rig.event("worker.ready", "mcp:x")["tools"]
        rows = interlock.attention("mcp:x")
        assert {row["code"] for row in rows} == {"tool_schema"}
        assert {row["subject"] for row in rows} == {"no_schema", "broken_schema", "echo"}
        assert all(row["fix"] and row["subject"] in row["message"] for row in rows)
        listed = [
            row["name"]
            for row in interlock.client.tools()["capabilities"]
            if row["source"] == "mcp:x"
        ]
        assert len(listed) == tools and "mcp:x/broken_schema" not in listed
        turn = interlock.client.turn('mcp:x/echo {"a": 1}\nmcp:x/no_schema {}\nmcp:x/pid {}')
        assert outcomes(list(turn)) == ["ok"] * 3
        assert interlock.client.call("mcp:x/broken_schema").outcome == "not_found"


def test_a_server_with_endless_or_many_pages_is_ready(rig: FaultRig) -> None:
    """However a server pages its list, the worker reads it in bounded time and says what is cut."""
    tables = (rogue_toml("endless", "endless_pages"), rogue_toml("many", "pages=30"))
    with rig.faulty(*tables, rogue_toml("new", "new_pages")) as interlock:
        assert rig.event("worker.ready", "mcp:new")["tools"] > 10
        for name, why in (("endless", "gave before"), ("new", "more than 200 pages")):
            rig.event("worker.ready", f"mcp:{name}")
            rows = interlock.attention(f"mcp:{name}")
            assert any(why in row["message"] for row in rows), rows
        assert not interlock.attention("mcp:many")
        assert rig.event("worker.ready", "mcp:endless")["tools"] > 10
        assert rig.event("worker.ready", "mcp:many")["tools"] > 300
