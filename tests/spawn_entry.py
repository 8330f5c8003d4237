"""The worker of the spawner's tests; what it does stands as JSON in `control` of its boot record.

{"report": address, "exit": code | null, "stubborn": bool, "grandchildren": n, "raise": bool}
It sends one JSON line about itself to the address, then does as told; else waits for EOF.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec

from interlock.bus.records import Boot

HOLES = "interlock.supervisor.spawn.holes"
"""A module that only processes forked from an image have."""
_SLEEPER = """
import os, signal, sys
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
os.write(1, b"x")
while True:
    signal.pause()
"""


def read_boot(lifeline: int) -> Boot:
    with open(lifeline, "rb", closefd=False, buffering=0) as pipe:
        size = int.from_bytes(pipe.read(4), "big")
        data = b""
        while len(data) < size:
            data += pipe.read(size - len(data))
    return msgspec.msgpack.decode(data, type=Boot)


def facts(lifeline: int) -> dict[str, object]:
    status = Path("/proc/self/status").read_text()
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "sid": os.getsid(0),
        "environ": dict(os.environ),
        "proc_environ": Path("/proc/self/environ").read_text(),
        "cwd": os.getcwd(),
        "descriptors": sorted(
            int(one)
            for one in os.listdir("/proc/self/fd")
            if os.path.exists(f"/proc/self/fd/{one}")
        ),
        "lifeline": lifeline,
        "stdin": os.readlink("/proc/self/fd/0"),
        "stdout": os.readlink("/proc/self/fd/1"),
        "stderr": os.readlink("/proc/self/fd/2"),
        "nice": os.nice(0),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "cpu_seconds": resource.getrlimit(resource.RLIMIT_CPU)[0],
        "blocked": lines["SigBlk"],
        "ignored": int(lines["SigIgn"], 16),
        "title": Path("/proc/self/cmdline").read_text().split("\0")[0],
        "threads": len(os.listdir("/proc/self/task")),
        "warmed": getattr(sys.modules.get("spawn_warm"), "calls", 0),
        "filled": bool(getattr(sys.modules.get(HOLES), "_plugs", ())),
    }


def grandchild() -> int:
    """Start a process in its own session that only SIGKILL can end; return its pid."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", _SLEEPER],
        start_new_session=True,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.read(1)
    return process.pid


def main(lifeline: int) -> None:
    order = json.loads(read_boot(lifeline).control)
    found = facts(lifeline)
    if order.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    found["grandchildren"] = [grandchild() for _ in range(order.get("grandchildren", 0))]
    sys.stdout.write("a line on stdout\n")
    sys.stderr.write("a line on stderr\n")
    if order.get("report"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.connect(order["report"])
            line.sendall(json.dumps(found).encode() + b"\n")
    if order.get("raise"):
        raise RuntimeError("as told")
    if order.get("exit") is not None:
        sys.exit(order["exit"])
    while order.get("stubborn"):
        signal.pause()
    os.read(lifeline, 1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
