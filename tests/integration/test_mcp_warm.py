"""What warming an image leaves behind, and what hosts import."""

from __future__ import annotations

import subprocess
import sys

WARM = """
import os, sys, threading
from interlock.workers.mcp.warm import warm
before = set(os.listdir("/proc/self/fd"))
warm()
assert threading.active_count() == 1, threading.enumerate()
assert len(os.listdir("/proc/self/task")) == 1
assert set(os.listdir("/proc/self/fd")) == before
assert "mcp.client.session" in sys.modules
"""
HOST = """
import sys
import interlock.workers.host
heavy = {"mcp", "mcp_types", "pydantic", "anyio", "httpx2", "keyring", "psutil", "structlog"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""


def run(program: str) -> None:
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_warming_leaves_no_thread_and_no_descriptor() -> None:
    run(WARM)


def test_the_host_alone_imports_no_sdk() -> None:
    run(HOST)
