"""The mcp worker as a process, against servers that behave and servers that do not."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest
from msgspec import structs
from worker_rig import content, read, rogue, running, text

from interlock.bus import messages as m
from interlock.bus import procfs
from interlock.bus.channel import CallAnswer
from interlock.bus.settings import McpServerSettings
from interlock.workers.mcp import transport


def run(scenario: Any) -> None:
    asyncio.run(scenario)


def test_a_worker_lists_calls_reports_and_leaves_nothing() -> None:
    async def scenario() -> None:
        async with running(rogue()) as rig:
            ready = await rig.expect(m.Ready)
            assert (ready.server, ready.endpoint) == ("rogue 1", rig.endpoint)
            assert ready.tools == len((await rig.expect(m.Capabilities)).rows)
            answer = await rig.call("echo", b'{\n "a": "\xc3\xa4",\r\n "b": [1, 2]}')
            assert json.loads(text(answer)) == {"a": "ä", "b": [1, 2]}
            rig.send(m.Ping(n=5))
            assert (await rig.expect(m.Pong)).n == 5
            batch = await rig.expect(m.CallReports)
            (report,) = batch.reports
            assert (report.capability, report.outcome, report.whole) == ("echo", "ok", True)
            children = await rig.expect(m.Children, lambda c: bool(c.children))
            assert [c.pid for c in children.children] == [c.pid for c in rig.note_tree()]
            rig.send(m.Drain(seconds=5))
            await rig.expect(m.Drained)
            assert (await rig.call("echo")).outcome == "unavailable"
            rig.send(m.Stop())
            assert await rig.exit_code() == 0

    run(scenario())


def test_odd_answers_harm_only_their_own_call() -> None:
    async def scenario() -> None:
        async with running(rogue("noise", "reverse")) as rig:
            failed = await rig.call("fail")
            assert (failed.outcome, text(failed)) == ("tool_error", "it failed")
            refused = await rig.call("rpc_error")
            assert (refused.outcome, text(refused)) == ("tool_error", "refused")
            wrong = await rig.call("rpc_error", {"code": -32602})
            assert (wrong.outcome, wrong.message) == ("invalid_arguments", "refused")
            assert (await rig.call("bad_result")).outcome == "unavailable"
            assert text(await rig.call("not_utf8")) == "a\ufffd\ufffdb"
            assert text(await rig.call("half_character")) == "a\ufffd"
            assert (await rig.call("garbage")).outcome == "ok"
            assert (await rig.call("twice")).outcome == "ok"
            assert (await rig.call("no_such_tool")).outcome == "not_found"
            assert (await rig.call("echo", b"[1]")).outcome == "invalid_arguments"
            assert (await rig.call("echo", b'{}},"id":{"x":1}')).outcome == "invalid_arguments"
            unknown = await rig.call("unknown_fields")
            assert unknown.body and b'"shape": {"of": ["things", "to", "come"]}' in unknown.body
            assert (await rig.call("burst", {"count": 2000})).outcome == "ok"
            assert (await rig.call("log", {"text": "careful"})).outcome == "ok"
            assert [(log.level, log.message) for log in rig.logs] == [("warning", "careful")]
            assert (await rig.call("long_line", {"bytes": 20_000_000})).outcome == "ok"
            rig.send(m.Ping(n=1))
            assert (await rig.expect(m.Pong)).dropped > 10

    run(scenario())


ANSWER = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"T"}]%s}}'
PRETTY = json.dumps({"jsonrpc": "2.0", "id": 5, "result": {"content": []}}, indent=1)


def test_an_answer_that_is_not_strict_json_is_read_or_ends_its_call_at_once() -> None:
    """A server that answers at once is not mute: no call waits for its deadline, no circuit
    opens, and the worker's log says what the server wrote.
    """

    async def scenario() -> None:
        async with running(rogue(call_timeout=60.0)) as rig:

            async def raw(text: str) -> CallAnswer:
                async with asyncio.timeout(10):
                    return await rig.call("raw", {"text": text})

            odd = ',"structuredContent":{"a":NaN,"b":-Infinity}'
            mended = await raw(ANSWER % odd)
            assert mended.outcome == "ok"
            assert json.loads(mended.body or b"")["structuredContent"] == {"a": None, "b": None}
            assert text(await raw((ANSWER % "").replace("T", "\x1b[2J NaN"))) == "\x1b[2J NaN"
            assert text(await raw("\ufeff" + ANSWER % "")) == "T"
            assert text(await raw("[%s]" % (ANSWER % ""))) == "T"
            deep = ',"structuredContent":' + '{"a":' * 50_000 + "1" + "}" * 50_000
            for bad, why in (
                (ANSWER % deep, "nested too deeply"),
                (ANSWER % ",", "JSON is malformed"),
                (PRETTY.replace("5", "ID"), "more than one line"),
            ):
                failed = await raw(bad)
                assert failed.outcome == "tool_error" and why in text(failed)
            # What a server prints of a request answers nothing.
            printed = 'got {"id": ID, "method": "tools/call"}\n{\n  "id": ID,\n  "method": "x"\n}'
            assert text(await raw(f"{printed}\n{ANSWER % ''}")) == "T"
            assert not rig.all(m.StateReport)
            log = rig.log.read_text()
            assert log.count("no JSON-RPC messages") == 1

    run(scenario())


def test_an_answer_to_initialize_with_numbers_that_json_has_not_is_read() -> None:
    async def scenario() -> None:
        async with running(rogue("odd_init=nan")) as rig:
            assert (await rig.expect(m.Ready)).server == "rogue 1"

    run(scenario())


def test_deadlines_progress_and_cancellation() -> None:
    async def scenario() -> None:
        async with running(rogue(), circuit_open=60) as rig:
            late = await rig.call("sleep", {"seconds": 5}, seconds=0.5)
            assert (late.outcome, late.may_have_run) == ("timeout", True)
            steps: list[float] = []
            renewed = await rig.start_call(
                "sleep",
                {"seconds": 2.5, "progress": 0.2},
                seconds=1.5,
                cap=30,
                on_progress=lambda p: steps.append(p.progress),
            )
            assert renewed.outcome == "ok" and len(steps) >= 5
            capped = await rig.call("sleep", {"seconds": 9, "progress": 0.2}, seconds=1.5, cap=2.0)
            assert capped.outcome == "timeout"
            running_call = rig.start_call("mute")
            await rig.report("mute", "")
            running_call.cancel()
            await rig.report("mute", "cancelled")
            assert len(json.loads(text(await rig.call("cancelled")))) == 3

    run(scenario())


def test_the_queue_is_bounded_and_the_rest_runs_later() -> None:
    async def scenario() -> None:
        async with running(rogue(concurrency=2, queue=2)) as rig:
            calls = [rig.start_call("sleep", {"seconds": 0.4}) for _ in range(6)]
            outcomes = [answer.outcome for answer in await asyncio.gather(*calls)]
            assert outcomes == ["ok"] * 4 + ["overloaded"] * 2

    run(scenario())


def test_the_circuit_opens_and_closes() -> None:
    async def scenario() -> None:
        async with running(rogue(call_timeout=0.3), circuit_open=1.5) as rig:
            for _ in range(3):
                assert (await rig.call("mute", seconds=0.3)).outcome == "timeout"
            state = await rig.expect(m.StateReport)
            assert (state.state, state.code) == ("DEGRADED", "circuit_open")
            assert state.reason.startswith("circuit open: 3 calls in a row failed")
            assert (await rig.call("echo")).outcome == "unavailable"
            await rig.expect(m.StateReport, lambda s: s.state == "READY")
            assert (await rig.call("echo")).outcome == "ok"

    run(scenario())


def test_an_open_circuit_stays_open_while_the_server_is_mute() -> None:
    async def scenario() -> None:
        settings = rogue("mute_ping", call_timeout=0.2)
        async with running(settings, circuit_open=0.2) as rig:
            for _ in range(3):
                assert (await rig.call("mute", seconds=0.2)).outcome == "timeout"
            await rig.expect(m.StateReport)
            rig.send(m.Drain(seconds=5))
            await rig.expect(m.Drained)
            assert [s.state for s in rig.all(m.StateReport)] == ["DEGRADED"]

    run(scenario())


def test_large_results_are_cut_and_kept() -> None:
    async def scenario() -> None:
        async with running(rogue(max_result=100_000)) as rig:
            cut = await rig.call("big", {"bytes": 300_000})
            assert cut.body and len(cut.body) <= 100_000
            path = content(cut)[-1]["text"]
            assert read(path) == "x" * 300_000
            assert os.stat(path).st_mode & 0o777 == 0o600
            images = await rig.call("images", {"bytes": 80_000, "count": 3})
            items = content(images)
            assert [item["type"] for item in items] == ["image", "text", "text"]
            assert "2 of 3 items are left out" in items[1]["text"]
            assert len(json.loads(read(items[-1]["text"]))["content"]) == 3
        async with running(rogue()) as rig:
            large = await rig.call("big", {"bytes": 8_000_000})
            assert large.outcome == "ok" and len(text(large)) == 8_000_000

    run(scenario())


def test_the_list_is_judged_tool_by_tool_and_followed() -> None:
    async def scenario() -> None:
        settings = rogue("no_schema", "duplicates", "pages=3", disabled_tools=("fail",))
        async with running(settings) as rig:
            capabilities = await rig.expect(m.Capabilities)
            names = [row.name for row in capabilities.rows]
            assert (
                names.count("echo") == 1 and "fail" in names
            )  # so that the supervisor can say why not
            assert (await rig.call("fail")).outcome == "not_found"
            assert [n for n in names if n.startswith("page_")][-1] == "page_3_9"
            assert {(d.name, d.mended) for d in capabilities.dropped} == {
                ("no_schema", True),
                ("broken_schema", False),
                ("echo", False),
            }
            assert (await rig.call("add_tool", {"name": "late"})).outcome == "ok"
            again = await rig.expect(m.Capabilities, lambda c: len(c.rows) == len(names) + 1)
            assert again.rows[-31].name == "late" or "late" in {row.name for row in again.rows}
            body = rig.bodies[rig.seen.index(again)]
            assert body and [json.loads(body)[d]["name"] for d in json.loads(body)] == ["late"]
            assert text(await rig.call("late")) == "late called"
        async with running(rogue("endless_pages", "extra_tools=3")) as rig:
            assert (await rig.expect(m.Ready)).tools > 3

    run(scenario())


def test_new_settings_apply_to_the_running_server() -> None:
    async def scenario() -> None:
        async with running(rogue()) as rig:
            pid = text(await rig.call("pid"))
            configure = {
                "server": "rogue",
                "settings": {
                    "command": "x",
                    "disabled_tools": ["fail"],
                    "concurrency": 1,
                    "queue": 0,
                },
                "folder": str(rig.home),
                "results_folder": str(rig.results),
            }
            told = len(rig.all(m.Capabilities))
            rig.send(m.Apply(), json.dumps(configure).encode())
            await rig.expect(m.Capabilities, lambda _: len(rig.all(m.Capabilities)) > told)
            first = rig.start_call("sleep", {"seconds": 0.5})
            assert (await rig.call("echo")).outcome == "overloaded"
            assert (await first).outcome == "ok"
            assert (await rig.call("fail")).outcome == "not_found"
            assert text(await rig.call("pid")) == pid

    run(scenario())


def test_settings_that_change_during_the_start_count() -> None:
    async def scenario() -> None:
        async with running(rogue("slow_init=0.5"), ready=False) as rig:
            children = await rig.expect(m.Children)
            assert [c.pid for c in children.children] == [c.pid for c in rig.note_tree()]
            settings = {"command": "x", "disabled_tools": ["fail"], "concurrency": 1, "queue": 0}
            configure = {"server": "rogue", "settings": settings, "folder": str(rig.home)}
            configure["results_folder"] = str(rig.results)
            rig.send(m.Apply(), json.dumps(configure).encode())
            ready = await rig.expect(m.Ready)
            capabilities = await rig.expect(m.Capabilities)
            assert len(capabilities.rows) == ready.tools + 1
            assert (await rig.call("fail")).outcome == "not_found"
            first = rig.start_call("sleep", {"seconds": 0.3})
            assert (await rig.call("echo")).outcome == "overloaded"
            assert (await first).outcome == "ok"

    run(scenario())


def test_a_second_listing_that_fails_stands_under_needs_attention() -> None:
    async def scenario() -> None:
        async with running(rogue()) as rig:
            await rig.call("break_list")
            notice = await rig.expect(m.Notice)
            assert (notice.code, notice.clear) == ("tool_list", False)
            assert "no list today" in notice.message and notice.fix
            assert (await rig.call("echo")).outcome == "ok"
            await rig.call("break_list", {"mend": True})
            await rig.expect(m.Notice, lambda n: n.clear and n.code == "tool_list")

    run(scenario())


def test_a_server_that_changes_its_tools_all_the_time_is_asked_less_often_and_named() -> None:
    async def scenario() -> None:
        async with running(rogue("other_tools=3")) as rig:
            notice = await rig.expect(m.Notice)
            assert (notice.code, notice.clear) == ("list_changes", False)
            assert "less often" in notice.message and notice.fix
            assert len(rig.all(m.Capabilities)) < 12
            assert (await rig.call("echo")).outcome == "ok"

    run(scenario())


def test_a_server_that_asks_and_does_not_read_takes_no_memory() -> None:
    """Answers of 37 bytes that nobody reads took ten times as much, up to half a gigabyte."""

    async def scenario() -> None:
        async with running(rogue("ask_flood")) as rig:
            before = procfs.resident_bytes([rig.process.pid])
            async with asyncio.timeout(60):
                n, dropped = 1, 0
                while dropped < 60_000:
                    rig.send(m.Ping(n=n))
                    dropped = (await rig.expect(m.Pong, lambda pong, n=n: pong.n == n)).dropped
                    n += 1
            assert procfs.resident_bytes([rig.process.pid]) - before < 8 << 20

    run(scenario())


def test_many_reports_before_an_answer_cost_it_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a server says while it has something to answer is no flood, up to 64 MiB."""
    monkeypatch.setattr(transport, "REST", 1e6)  # whoever is taken for a flood is heard no more
    line = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"%b"}}\n'
    said = line % (b"x" * 1000) * 8000 + b'{"jsonrpc":"2.0","id":"i1","result":{}}\n'

    async def scenario() -> None:
        loop, (theirs, ours), (output, written) = asyncio.get_running_loop(), os.pipe(), os.pipe()
        seen: list[transport.Frame] = []
        answered = loop.create_future()
        line = transport.StdioTransport(
            ours,
            output,
            on_message=seen.append,
            on_foreign=lambda line: False,
            on_closed=lambda reason: None,
        )
        line.request(line.next_id(), "tools/call", b"{}", answered.set_result)

        def serve() -> None:
            with open(written, "wb") as server:
                server.write(said)

        writing = loop.run_in_executor(None, serve)
        async with asyncio.timeout(30):
            assert (await answered).result == b"{}"
        await writing
        assert len(seen) == 8000
        line.close()
        os.close(theirs)

    run(scenario())


def test_what_starts_by_itself_in_a_session_of_its_own_is_recorded_soon() -> None:
    """Without a call: the record is all that finds such a process once everybody is gone."""

    async def scenario() -> None:
        async with running(rogue("late_session")) as rig:
            await rig.expect(m.Ready)
            await rig.expect(m.Children, lambda told: len(told.children) == 2, seconds=15)

    run(scenario())


def test_a_server_that_does_not_read_costs_its_own_calls_only() -> None:
    async def scenario() -> None:
        async with running(rogue("not_reading")) as rig:
            calls = [rig.start_call("echo", {"t": "x" * 1_000_000}, seconds=1) for _ in range(5)]
            rig.send(m.Ping(n=1))
            await rig.expect(m.Pong, seconds=2)
            outcomes = {answer.outcome for answer in await asyncio.gather(*calls)}
            assert outcomes <= {"timeout", "unavailable"}

    run(scenario())


@pytest.mark.parametrize("flood", ["flood_stdout", "flood_stderr", "flood_notify=20000"])
def test_a_flood_keeps_nobody_from_an_answer(flood: str) -> None:
    async def scenario() -> None:
        async with running(rogue(flood)) as rig:
            for n in range(5):
                assert (await rig.call("pid", seconds=10)).outcome == "ok"
                rig.send(m.Ping(n=n))
                await rig.expect(m.Pong, lambda pong, n=n: pong.n == n, seconds=5)
            assert rig.log.stat().st_size < 1_000_000

    run(scenario())


@pytest.mark.parametrize(
    ("modes", "code", "words"),
    [
        ("mute_init", "init_timeout", "did not answer within 0.7 s"),
        ("mute_list", "init_timeout", "did not answer within 0.7 s"),
        (
            "exit_at_start",
            "server_exited",
            "exited with status 3; its last words: rogue:",
        ),
        ("exit_after_init", "server_exited", "exited with status 4"),
        ("close_stdout", "server_closed_output", "closed its output"),
        ("bad_init", "protocol_error", "does not follow the protocol"),
        ("init_error", "init_failed", "no licence"),
        ("odd_init=text", "protocol_error", "no object as its result"),
        ("odd_init=pretty", "protocol_error", "more than one line"),
        ("odd_init=header mute_later", "init_timeout", "no JSON-RPC: Content-Length:"),
        ("mute_init ignore_end grandchild_session", "init_timeout", "did not answer"),
    ],
)
def test_a_server_that_does_not_start_is_named(modes: str, code: str, words: str) -> None:
    async def scenario() -> None:
        limit = 0.7 if "mute" in modes else 20.0
        settings = rogue(*modes.split(), init_timeout=limit)
        async with running(settings, ready=False, term=1.0) as rig:
            await asyncio.to_thread(lambda: None)
            failed = await rig.expect(m.WorkerFailed)
            assert (failed.code, failed.permanent) == (code, False)
            assert words in failed.reason
            assert await rig.exit_code() == 1

    run(scenario())


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"command": "no-such-program"}, "command_not_found", "command not found: no-such-program"),
        (
            {"command": "/etc/hostname"},
            "no_permission",
            "/etc/hostname is no program that",
        ),
        ({"command": "/etc"}, "no_permission", "/etc is a folder, not a program"),
        (
            {"command": "sh", "args": ["x" * 200_000]},
            "start_failed",
            "Argument list too long",
        ),
        ({"command": "sh", "cwd": "/nowhere"}, "bad_cwd", "/nowhere"),
        ({"url": "http://x"}, "not_supported", "not a server over stdio"),
        ({"command": "sh", "env": {"A": "${RIG_ABSENT}"}}, "secret_unresolved", "${RIG_ABSENT}"),
    ],
)
def test_an_entry_that_cannot_work_fails_for_good(
    settings: dict[str, Any], code: str, words: str
) -> None:
    async def scenario() -> None:
        async with running(McpServerSettings(**settings), ready=False) as rig:
            failed = await rig.expect(m.WorkerFailed)
            assert (failed.code, failed.permanent) == (code, True)
            assert words in failed.reason and failed.fix
            assert len(failed.reason) < 150 and "bin" not in failed.reason
            assert await rig.exit_code() == 1

    run(scenario())


def test_a_server_that_misses_a_variable_is_told_with_what_passes_it_on() -> None:
    words = "Error: RIG_TOKEN environment variable is required"
    settings = McpServerSettings(command="sh", args=("-c", f"echo '{words}' >&2; exit 1"))
    named = structs.replace(settings, env={"RIG_TOKEN": "${RIG_ABSENT:-}"})

    async def scenario() -> None:
        for entry, advised in ((settings, True), (named, False)):
            async with running(entry, ready=False) as rig:
                failed = await rig.expect(m.WorkerFailed)
                assert failed.code == "server_exited" and words in failed.reason
                assert ('write env = { RIG_TOKEN = "" }' in failed.fix) is advised
                assert await rig.exit_code() == 1

    run(scenario())
