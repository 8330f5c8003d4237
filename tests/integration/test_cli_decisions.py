"""What people decide at the command line: approvals by an id's beginning, ends not awaited."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

from command_line import CommandLine, server_table


def sockets(pid: int) -> bool:
    """Whether a process holds any socket."""
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            if os.readlink(f"/proc/{pid}/fd/{number}").startswith("socket:"):
                return True
        except FileNotFoundError:
            continue
    return False


def test_an_approval_is_decided_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    cli = CommandLine(tmp_path)
    (cli.folder / "c.toml").write_text(server_table("small") + '[policy]\nask = ["mcp:*"]\n')
    cli.run("up", "--detach", "--config", "c.toml")
    try:
        cli.run("start", "small")
        with cli.popen("call", "mcp:small/echo", '{"text": "x"}', stdin=subprocess.DEVNULL) as call:
            assert call.stderr is not None
            assert "It waits" in call.stderr.readline()
            (row,) = cli.json("approvals")["approvals"]
            assert row["id"] in cli.run("approve", row["id"][:4])
            assert call.wait(30) == 0
        past = cli.run("approvals", "--past", "5")
        assert re.search(r"DECIDED +OUTCOME +CAPABILITY +BY", past)
        assert re.search(rf"{row['id']}  \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d  approved +", past)
        assert " a person " in past and "api:" not in past
    finally:
        cli.run("down")


def test_ctrl_c_while_it_stops_says_that_the_stop_goes_on(tmp_path: Path) -> None:
    cli = CommandLine(tmp_path)
    script = "trap '' TERM; while :; do sleep 1; done"
    (cli.folder / "c.toml").write_text(
        "[supervisor]\ntiming = { term = 3.0 }\n"
        f'[mcp_servers.slow]\ncommand = "/bin/sh"\nargs = ["-c", {json.dumps(script)}]\n'
    )
    cli.run("up", "--detach", "--config", "c.toml")
    try:
        with cli.popen("attach", "--json") as monitor:
            assert monitor.stdout is not None
            assert json.loads(monitor.stdout.readline())["topic"] == "snapshot"
            with cli.popen("down") as down:
                for line in monitor.stdout:
                    if json.loads(line)["topic"] == "worker.stopping":
                        break
                while sockets(down.pid):
                    os.sched_yield()  # it waits from when it has its answer and no socket any more
                down.send_signal(signal.SIGINT)
                _, said = down.communicate(timeout=30)
            monitor.kill()
        assert down.returncode == 130
        assert "goes on stopping" in said
    finally:
        cli.shell("interlock down")
