"""Command-line tools of a real supervisor: what runs, what is refused, and what is left of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised import DIRECT_AGENT, Supervised, timing

PROGRAM = """
import json, os, subprocess, sys, time
what = sys.argv[1]
if what == "say":
    print(json.dumps(sys.argv[2:]))
elif what == "env":
    print(json.dumps(dict(os.environ)))
elif what == "where":
    print(os.getcwd())
elif what == "fail":
    print("half")
    print("it went wrong", file=sys.stderr)
    sys.exit(3)
elif what == "big":
    print("x" * int(sys.argv[2]))
elif what == "sleep":
    here = sys.argv[3:] or [None]
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    lost = subprocess.Popen(
        [sys.executable, "-c", "import signal,time; signal.signal(15,1); time.sleep(600)"],
        start_new_session=True,
    )
    with open(sys.argv[2] + ".tmp", "w") as file:
        file.write(f"{os.getpid()} {child.pid} {lost.pid}")
    os.rename(sys.argv[2] + ".tmp", sys.argv[2])
    time.sleep(600)
elif what == "leave":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(child.pid)
elif what == "stdin":
    print(repr(sys.stdin.read()))
"""


def entry(name: str, path: Path, **keys: str) -> str:
    lines = [f"[cli_tools.{name}]", f'command = "{sys.executable}"', f'args = ["{path}"]']
    return "\n".join([*lines, *(f"{key} = {value}" for key, value in keys.items()), ""])


@pytest.fixture(scope="module")
def interlock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    folder = tmp_path_factory.mktemp("cli")
    program = folder / "program.py"
    program.write_text(PROGRAM)
    link = folder / "innocent"
    link.symlink_to(Path(sys.executable).with_name("interlock"))
    config = timing() + DIRECT_AGENT
    config += entry("all", program, timeout="20", env='{ OWN = "mine", TAKEN = "" }')
    config += entry("few", program, subcommands='["say hello", "where"]', tier='"safe"')
    config += entry(
        "quick", program, timeout="1.0", max_output='"4KiB"', concurrency="1", queue="1"
    )
    config += f'[cli_tools.own]\ncommand = "{link}"\n'
    config += f'[cli_tools.module]\ncommand = "{sys.executable}"\n'
    config += 'args = ["-m", "interlock.supervisor.cli"]\n'
    config += '[cli_tools.none]\ncommand = "no-such-program-here"\n'
    environ = {"TAKEN": "taken", "ANTHROPIC_API_KEY": "sk-nobody-sees-this"}
    with Supervised(folder, config, environ=environ) as running:
        for name in ("all", "few", "quick"):
            running.wait_state(f"cli:{name}", "READY")
        yield running


def run(interlock: Supervised, name: str, *args: str, timeout: float | None = None):  # type: ignore[no-untyped-def]
    return interlock.client.call(f"cli:{name}", {"args": list(args)}, timeout=timeout)


def text(answer) -> str:  # type: ignore[no-untyped-def]
    return str(answer.content[0]["text"])


def test_rows(interlock: Supervised) -> None:
    rows = {row["name"]: row for row in interlock.client.tools()["capabilities"]}
    assert {"cli:all", "cli:few", "cli:quick"} <= rows.keys()
    few = rows["cli:few"]
    assert (few["wire"], few["kind"], few["source"]) == ("cli__few", "cli", "cli:few")
    assert few["tier"] == "safe" and few["connected"]


def test_no_shell_reads_the_words(interlock: Supervised) -> None:
    words = ["$(id)", "a b", "; ls", "*", "", "--x=1"]
    answer = run(interlock, "all", "say", *words)
    assert answer.outcome == "ok" and answer.structured == {"exit_code": 0}
    assert text(answer) == str(words).replace("'", '"')


def test_environment_folder_and_standard_input(interlock: Supervised) -> None:
    seen = text(run(interlock, "all", "env"))
    assert '"OWN": "mine"' in seen and '"TAKEN": "taken"' in seen
    assert "sk-nobody" not in seen and "INTERLOCK" not in seen
    assert text(run(interlock, "all", "where")) == str(interlock.config.parent)
    assert text(run(interlock, "all", "stdin")) == "''"


def test_a_program_that_fails(interlock: Supervised) -> None:
    answer = run(interlock, "all", "fail")
    assert answer.outcome == "tool_error" and answer.structured == {"exit_code": 3}
    assert text(answer).splitlines() == [
        "half",
        "[standard error]",
        "it went wrong",
        "[the program exited with status 3]",
    ]


def test_only_listed_subcommands(interlock: Supervised) -> None:
    assert run(interlock, "few", "say", "hello", "you").outcome == "ok"
    for words in ([], ["say"], ["say", "bye"], ["env"], ["--", "say", "hello"]):
        assert run(interlock, "few", *words).outcome == "invalid_arguments", words
    items = list(interlock.client.turn('cli__few {"subcommand": "where"}'))
    assert [item["outcome"] for item in items if item["type"] == "tool.result"] == ["ok"]


def test_large_output_is_cut_and_kept(interlock: Supervised) -> None:
    answer = run(interlock, "quick", "big", "50000")
    path = Path(answer.content[-1]["text"])
    assert answer.outcome == "ok" and path.is_relative_to(interlock.home.path)
    assert path.read_text() == "x" * 50000
    note = answer.content[-2]["text"]
    assert len(text(answer)) < 4096 and "Cut by Interlock" in note
    assert f"the whole, 50000 bytes, is in {path}]" in note, "what the file has, not the JSON"


def test_an_answer_names_the_file_with_the_whole(interlock: Supervised) -> None:
    items = list(interlock.client.turn('cli__all {"args": ["big", "50000"]}'))
    (result,) = (item for item in items if item["type"] == "tool.result")
    path = Path(result["content"][-1]["text"])
    assert len(path.read_text()) == 50000
    assert items[-1]["text"].endswith(f"[the first 16384 characters; the whole is in {path}]")


def test_a_timeout_ends_the_whole_tree(interlock: Supervised, tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    answer = run(interlock, "quick", "sleep", str(mark), timeout=30)
    assert answer.outcome == "timeout" and answer.duration_ms < 8000
    for pid in map(int, mark.read_text().split()):
        assert not os.path.exists(f"/proc/{pid}"), pid
    assert run(interlock, "quick", "say").outcome == "ok"


def test_nothing_outlives_its_call(interlock: Supervised) -> None:
    answer = run(interlock, "all", "leave")
    assert answer.outcome == "ok" and not os.path.exists(f"/proc/{text(answer)}")


def test_calls_wait_and_then_are_too_many(interlock: Supervised, tmp_path: Path) -> None:
    calls = [f'cli:quick {{"args": ["sleep", "{tmp_path / str(number)}"]}}' for number in range(4)]
    items = interlock.client.turn(" & ".join(calls))
    outcomes = [item["outcome"] for item in items if item["type"] == "tool.result"]
    assert sorted(outcomes) == ["overloaded", "overloaded", "timeout", "timeout"]


@pytest.mark.parametrize("name", ["own", "module"])
def test_interlock_itself_is_no_tool(interlock: Supervised, name: str) -> None:
    row = interlock.wait_state(f"cli:{name}", "FAILED")
    assert "Interlock itself" in row["reason"]
    (told,) = interlock.attention(f"cli:{name}")
    assert told["code"] == "forbidden_command"
    assert interlock.client.call(f"cli:{name}", {}).outcome == "unavailable"


def test_a_program_that_is_not_there(interlock: Supervised) -> None:
    row = interlock.wait_state("cli:none", "FAILED")
    assert row["reason"] == "command not found: no-such-program-here"


def test_a_python_tool_runs_no_module_of_interlock(tmp_path: Path) -> None:
    config = timing() + f'[cli_tools.py]\ncommand = "{sys.executable}"\n'
    with Supervised(tmp_path, config) as interlock:
        interlock.wait_state("cli:py", "READY")
        denied = run(interlock, "py", "-m", "interlock.supervisor.cli", "down")
        assert denied.outcome == "denied"
        assert run(interlock, "py", "-c", "print(1)").outcome == "ok"
        place = interlock.mark()
        pid = interlock.worker("cli:py")["pid"]
        interlock.config.write_text(config + 'subcommands = ["-"]\n')
        interlock.wait_event("config.reloaded", after=place)
        assert interlock.worker("cli:py")["pid"] == pid, "a broken entry goes on as it was"
        place = interlock.mark()
        interlock.config.write_text(config + 'subcommands = ["script"]\n')
        interlock.wait_event("config.reloaded", after=place, applied=("cli:py",))
        assert interlock.worker("cli:py")["pid"] == pid
        # No event tells when a worker has taken its new settings; the calls themselves do.
        outcomes = (run(interlock, "py", "-c", "print(1)").outcome for _ in range(500))
        assert "invalid_arguments" in outcomes
        place = interlock.mark()
        interlock.config.write_text(config + 'cwd = "/"\n')
        interlock.wait_event("worker.ready", "cli:py", place)
        interlock.config.write_text(timing())
        interlock.wait_event("catalog.changed", "cli:py", place, removed=("cli:py",))
