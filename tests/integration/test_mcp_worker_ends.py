"""How an MCP worker and its server end: together, in order, and with nothing left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

import pytest
from worker_rig import read, rogue, running, text

from interlock.bus import messages as m
from interlock.bus import procfs
from interlock.bus.settings import Limits, McpServerSettings


def run(scenario: Any) -> None:
    asyncio.run(scenario)


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("crash", {"code": 9}, "exited with status 9"),
        ("crash", {"signal": int(signal.SIGSEGV)}, "was killed by SIGSEGV"),
        ("close_stdout", {}, "closed its output"),
    ],
)
def test_the_end_of_the_server_ends_its_calls_and_the_worker(
    tool: str, arguments: dict[str, Any], words: str
) -> None:
    async def scenario() -> None:
        async with running(rogue(), term=1.0) as rig:
            other = rig.start_call("mute")
            rig.note_tree()
            answer = await rig.call(tool, arguments)
            assert (answer.outcome, answer.may_have_run) == ("worker_died", True)
            assert (await other).outcome == "worker_died"
            failed = await rig.expect(m.WorkerFailed)
            assert words in failed.reason
            assert await rig.exit_code() == 1

    run(scenario())


@pytest.mark.parametrize("kill_worker", [False, True])
def test_grandchildren_go_with_the_server(kill_worker: bool) -> None:
    async def scenario() -> None:
        settings = rogue("ignore_end", "grandchild", "grandchild_session")
        # Only an executed worker has a lifeline that this process can end.
        async with running(settings, executed=kill_worker, term=1.0) as rig:
            for own_session in (True, False):
                assert (await rig.call("spawn", {"session": own_session})).outcome == "ok"
            await rig.expect(m.Children, lambda c: len(c.children) == 5)
            assert len(rig.note_tree()) == 5
            if kill_worker:
                # The lifeline's end is how a worker learns that its spawner is gone.
                rig.close_lifeline()
                assert await rig.exit_code() == 1

    run(scenario())


def test_the_environment_is_an_allow_list_and_secrets_stay_hidden() -> None:
    async def scenario() -> None:
        secret, other = "planted-secret-4711", "planted-other-4712"
        settings = rogue(
            env={
                "RIG_TOKEN": "",
                "AUTH": "Bearer ${RIG_TOKEN}",
                "API_KEY": other,
                "LEVEL": "9",
                "INTERLOCK_HOME": "/named",
            },
            api_key_env="INTERLOCK_KEY",
            limits=Limits(nice=7, open_files=200),
        )
        env = {
            "RIG_TOKEN": secret,
            "OPENAI_API_KEY": "sk-nobody",
            "INTERLOCK_HOME": "/x",
            "INTERLOCK_KEY": "x",
        }
        async with running(settings, env=env) as rig:
            seen = json.loads(text(await rig.call("env")))
            assert seen["RIG_TOKEN"] == secret and seen["AUTH"] == f"Bearer {secret}"
            assert seen["LEVEL"] == "9" and "PATH" in seen and "HOME" in seen
            assert "OPENAI_API_KEY" not in seen
            assert not [name for name in seen if name.startswith("INTERLOCK_")]
            server = rig.note_tree()[0].pid
            limits = read(f"/proc/{server}/limits")
            assert "Max open files            200" in limits
            words = {"text": f"using {secret} and {other}"}
            assert (await rig.call("stderr", words)).outcome == "ok"
            assert (await rig.call("log", {"text": f"with {secret}"})).outcome == "ok"
            assert (await rig.call("crash")).outcome == "worker_died"
            failed = await rig.expect(m.WorkerFailed)
            assert await rig.exit_code() == 1
            told = [repr(rig.seen), repr(rig.logs), rig.log.read_text(), failed.reason]
            assert "using [secret] and [secret]" in told[2] and "[secret]" in failed.reason
            assert not [t for t in told if secret in t or other in t]

    run(scenario())


def test_a_path_that_is_no_utf8_is_a_reason_like_any_other() -> None:
    async def scenario() -> None:
        settings = McpServerSettings(command="true", cwd="${HOME}/nowhere", env={"PLANTED": ""})
        environ = {name: os.fsdecode(b"/tmp/\xff") for name in ("HOME", "PLANTED")}
        async with running(settings, ready=False, env=environ) as rig:
            failed = await rig.expect(m.WorkerFailed)
            assert failed.code != "internal" and "nowhere" in failed.reason
            assert await rig.exit_code() == 1

    asyncio.run(scenario())


def test_a_worker_without_a_lifeline_does_not_start() -> None:
    async def scenario() -> None:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "interlock.workers.host", "0"),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, words = await process.communicate()
        assert process.returncode == 1 and b"The lifeline ended" in words

    run(scenario())


def test_a_call_that_waited_when_the_server_ended_has_not_run() -> None:
    async def scenario() -> None:
        async with running(rogue(concurrency=1), term=1.0) as rig:
            first = rig.start_call("sleep", {"seconds": 20})
            await rig.report("sleep", "")
            waiting = [rig.start_call("echo") for _ in range(3)]
            rig.send(m.Ping(n=1))
            for n in range(2, 1000):
                if (await rig.expect(m.Pong, lambda pong, n=n: pong.n == n - 1)).queue == 3:
                    break
                rig.send(m.Ping(n=n))
            [server] = rig.note_tree()
            procfs.kill(server)
            assert (await first).may_have_run
            ends = [await call for call in waiting]
            assert {(end.outcome, end.may_have_run) for end in ends} == {("worker_died", False)}

    run(scenario())


def test_the_last_answers_leave_before_the_worker() -> None:
    async def scenario() -> None:
        async with running(rogue(), term=1.0) as rig:
            large = rig.start_call("big", {"bytes": 7_000_000})
            small = [rig.start_call("echo") for _ in range(5)]
            await rig.report("big", "ok")
            rig.send(m.Drain(seconds=10))
            await rig.expect(m.Drained)
            rig.send(m.Stop())
            assert [(await call).outcome for call in (large, *small)] == ["ok"] * 6
            assert await rig.exit_code() == 0

    run(scenario())


def test_sigterm_ends_a_worker_in_order() -> None:
    async def scenario() -> None:
        async with running(rogue()) as rig:
            rig.note_tree()
            rig.process.send_signal(signal.SIGTERM)
            assert await rig.exit_code() == 0

    run(scenario())
