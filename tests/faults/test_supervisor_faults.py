"""Both guardians killed at once, and a disk on which nothing fits any more."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from supervised import DIRECT_AGENT, Supervised, rogue_toml, timing

from interlock.bus import procfs


def test_what_both_deaths_leave_over_is_swept_by_the_next_start(tmp_path: Path) -> None:
    config = timing() + DIRECT_AGENT + rogue_toml("x", "grandchild_session", "ignore_end")
    with Supervised(tmp_path, config, clean=False) as interlock:
        interlock.wait_state("mcp:x", "READY")
        place = interlock.mark()
        interlock.client.call("mcp:x/echo", {})  # after a call a worker looks at its children
        interlock.wait_event("tool.completed", "mcp:x", place)
        interlock.wait_for_children("mcp:x", 2)
        spawner = procfs.children(interlock.pid)[0]
        interlock.process.send_signal(signal.SIGSTOP)
        os.kill(spawner, signal.SIGKILL)
        interlock.process.kill()
        interlock.stop()
        interlock.client.close()
        interlock.clean = True
        interlock.start()
        interlock.wait_state("mcp:x", "READY")
        assert interlock.client.call("mcp:x/echo", {}).outcome == "ok"


def test_a_full_disk_stops_nothing_and_is_said(tmp_path: Path) -> None:
    config = timing() + DIRECT_AGENT + rogue_toml("x")
    with Supervised(tmp_path, config, file_size=12_000) as interlock:
        interlock.wait_state("mcp:x", "READY")
        interlock.wait_state("agent:main", "READY")
        text = "x" * 3000
        for _ in range(12):
            stream = list(interlock.client.turn(f'mcp:x/echo {{"a": "{text}"}}'))
            assert stream[-1]["type"] == "turn.completed"
        codes = {row["code"] for row in interlock.attention() if row["name"] == "supervisor"}
        assert any("disk" in code or "journal" in code for code in codes), codes
        shown = interlock.client.turns()["turns"]
        assert len(shown) == 12 and {row["state"] for row in shown} == {"completed"}
        assert interlock.client.control("restart", "mcp:x")["state"] == "READY"
