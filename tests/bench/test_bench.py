"""`interlock bench` measures and reports; whether budgets are met is for people to read."""

from __future__ import annotations

import io
import json
import subprocess
import sys

import pytest

from interlock.bus.errors import UsageError
from interlock.supervisor.bench.budgets import KEYS
from interlock.supervisor.bench.run import GROUPS, run_bench


def test_every_key_is_measured_by_one_group() -> None:
    assert sorted(key for _, keys in GROUPS for key in keys) == sorted(KEYS)


def test_an_unknown_key_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="call_p50_ratio"):
        run_bench("speed")


@pytest.mark.parametrize("key", ["kill_to_event_ms", "stopped_supervisor_failures"])
def test_one_key_is_measured_alone(key: str) -> None:
    out, err = io.StringIO(), io.StringIO()
    assert run_bench(key, True, out, err) == 0
    result = json.loads(out.getvalue())
    assert result.keys() == {key, "machine"}
    assert isinstance(result[key], float)
    assert err.getvalue()


def test_the_sdk_client_answers_as_the_bench_asks() -> None:
    from interlock.supervisor.bench.lab import server

    command = [sys.executable, "-P", "-m", "interlock.workers.mcp.sdkbench", *server("tiny")]
    requests = [{"calls": 20, "size": 10, "width": 1}, {"calls": 64, "size": 10, "width": 32}]
    done = subprocess.run(
        command,
        input="".join(json.dumps(request) + "\n" for request in requests),
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    serial, wide = map(json.loads, done.stdout.splitlines())
    assert serial["p50_us"] > 0
    assert wide["per_second"] > 0
