from __future__ import annotations

import os
import signal
import subprocess
import threading
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.supervisor.bench.budgets import BUDGETS, KEYS, table
from interlock.supervisor.demo.screen import item_lines, table_lines
from interlock.supervisor.home.folders import temporary_folder
from interlock.supervisor.home.temporary import server_table, toml_text

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=8,
)


@given(VALUES)
def test_toml_is_read_back_as_it_was_written(value: object) -> None:
    assert tomllib.loads(f"key = {toml_text(value)}")["key"] == value


def test_a_server_is_one_table() -> None:
    text = server_table("a", ["python", "-c", 'print("\\")'], queue=2)
    assert tomllib.loads(text) == {
        "mcp_servers": {"a": {"command": "python", "args": ["-c", 'print("\\")'], "queue": 2}}
    }


def test_a_temporary_folder_is_gone_after_a_signal_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), temporary_folder("x") as folder:
        (folder / "file").write_text("text")
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    assert not list(tmp_path.iterdir())
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_temporary_folder_is_gone_although_something_writes_there_for_a_moment_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    writes = 'n=0; while [ $n -lt 4000 ] && : > "$1/$n"; do echo; n=$((n + 1)); done'
    with temporary_folder("x") as folder:
        command = ["sh", "-c", writes, "sh", str(folder)]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert writer.stdout is not None
        writer.stdout.readline()
        draining = threading.Thread(target=writer.stdout.read)
        draining.start()
    assert not list(tmp_path.iterdir())
    draining.join()
    writer.stdout.close()
    writer.wait()


def test_the_table_says_what_is_met_and_what_is_missed() -> None:
    lines = table({"call_p50_ratio": 0.71, "calls32_ratio": 4.0, "status_ms": 1234.5})
    assert [line.split()[-1] for line in lines[1:]] == ["missed", "met", "missed"]
    assert "<= 0.7" in lines[1]
    assert ">= 4" in lines[2]


def test_every_key_has_one_budget() -> None:
    assert len(set(KEYS)) == len(BUDGETS)
    assert all((b.most is None) != (b.least is None) for b in BUDGETS)


def test_a_turn_is_shown_item_by_item() -> None:
    items = [
        {"type": "turn.started", "agent": "main", "model": "direct", "offered": 3},
        {"type": "tool.call", "capability": "mcp:a/b"},
        {"type": "tool.result", "id": "call_1", "outcome": "ok", "duration_ms": 3.4},
        {"type": "text.delta", "text": "\none\ntwo\n"},
        {"type": "usage", "input_tokens": 1, "output_tokens": 2},
        {"type": "turn.completed", "text": "one\ntwo"},
    ]
    assert [line for item in items for line in item_lines(item)] == [
        "  agent main (direct), 3 tools offered",
        "  -> mcp:a/b",
        "  <- call_1: ok, 3 ms",
        "  | one",
        "  | two",
        "  completed",
    ]


def test_the_process_table_is_aligned_and_never_too_wide() -> None:
    rows = [
        {"name": "mcp:git", "state": "READY", "pid": 7, "restarts": 1, "rss_bytes": 2**21},
        {"name": "mcp:x", "state": "FAILED", "pid": None, "restarts": 6, "reason": "r" * 300},
    ]
    head, first, second = table_lines(rows)
    assert head.index("STATE") == first.index("READY") == second.index("FAILED")
    assert "2 MB" in first
    assert len(second) == 100
