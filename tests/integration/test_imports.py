"""What the processes of Interlock have imported, told by the processes themselves.

They run with a Python environment of the test's own. It installs a signal handler that sends
`sys.modules` through a pipe; a variable would not reach the workers, they do not inherit it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from supervised import DIRECT_AGENT, Supervised, server_toml, timing

import interlock.bus

TELL = """
import os, signal, sys

def write(target):
    with open(target, "w") as file:
        file.write("\\n".join(list(sys.modules)))

signal.signal(signal.SIGUSR1, lambda *_: write(os.path.join({folder!r}, str(os.getpid()))))
def end(code):
    write(os.path.join({folder!r}, f"end-{{os.getpid()}}"))
    leave(code)

leave, os._exit = os._exit, end  # A command ends so, without the exit functions of Python.
"""
SMALL = Path(__file__).parents[1] / "small_server.py"
FORKED = "interlock.supervisor.spawn.image"
"""A module that only processes forked from an image have; executed ones begin anew."""
HEAVY = {"mcp", "mcp_types", "pydantic", "pydantic_core", "starlette", "uvicorn", "httpx", "httpx2"}
"""The SDK and what comes with it."""
ALLOWED = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in {"interlock", "zmq", "msgspec"} and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refuse())
before = set(sys.modules)
import interlock.bus
if "all" in sys.argv:
    for name in interlock.bus.__all__:
        getattr(interlock.bus, name)
files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
print(*(name for name in files.keys() - before if files[name]))
"""


class Environment:
    """A Python environment with all that this one has, whose processes tell their modules."""

    def __init__(self, folder: Path) -> None:
        self.told = folder / "told"
        self.told.mkdir()
        venv.create(folder / "venv", symlinks=True)
        self.python = folder / "venv" / "bin" / "python"
        (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
        (site / "everything.pth").write_text("\n".join(filter(os.path.isdir, sys.path)))
        (site / "sitecustomize.py").write_text(TELL.format(folder=str(self.told)))

    def modules(self, pid: int) -> set[str]:
        """Ask a running process for the names in its `sys.modules`."""
        path = self.told / str(pid)
        os.mkfifo(path)
        pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        os.kill(pid, signal.SIGUSR1)
        pieces = []
        while not pieces or pieces[-1]:
            assert select.select([pipe], [], [], 20)[0], "the process does not answer"
            pieces.append(os.read(pipe, 65536))
        os.close(pipe)
        return set(b"".join(pieces).decode().split("\n"))

    def modules_at_end(self, *arguments: str) -> set[str]:
        """Run Python to its end and return the names that were in its `sys.modules` then."""
        with subprocess.Popen([self.python, *arguments], stdout=subprocess.PIPE) as process:
            process.communicate(timeout=30)
        assert process.returncode == 0
        return set((self.told / f"end-{process.pid}").read_text().split("\n"))


def packages(modules: set[str]) -> set[str]:
    """The top-level packages of modules, without those of the standard library."""
    return {name.partition(".")[0] for name in modules} - sys.stdlib_module_names


@pytest.mark.parametrize("spawn", ["fork", "exec"])
def test_only_the_mcp_worker_has_the_sdk(tmp_path: Path, spawn: str) -> None:
    environment = Environment(tmp_path)
    config = timing() + f'spawn = "{spawn}"\n' + DIRECT_AGENT
    config += server_toml("small", sys.executable, str(SMALL))
    with Supervised(tmp_path, config, python=environment.python) as interlock:
        worker = interlock.wait_state("mcp:small", "READY")
        agent = interlock.wait_state("agent:main", "READY")
        # Work first: what is imported late counts, too.
        items = list(interlock.client.turn('mcp:small/echo {"text": "done"}'))
        assert (items[-1]["type"], items[-1]["text"]) == ("turn.completed", "done")
        home = str(interlock.home.path)
        cli = ("-P", "-m", "interlock.supervisor.cli", "--home", home)
        light = {
            "supervisor": environment.modules(interlock.pid),
            "agent": environment.modules(agent["pid"]),
            "status": environment.modules_at_end(*cli, "status"),
            "status --json": environment.modules_at_end(*cli, "status", "--json"),
        }
        heavy = environment.modules(worker["pid"])
    for who, modules in light.items():
        assert "interlock.bus.codec" in modules, who
        assert packages(modules) & HEAVY == set(), who
    assert "interlock.workers.agent.direct" in light["agent"]
    assert (FORKED in light["agent"]) == (spawn == "fork")
    assert packages(heavy) >= {"mcp", "pydantic"}, "this way to look does not see the SDK at all"


@pytest.mark.parametrize("what", ["module", "all"])
def test_the_client_loads_pyzmq_and_msgspec_only(what: str) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", ALLOWED, what], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    modules = set(done.stdout.split())
    assert packages(modules) == (
        {"interlock", "zmq", "msgspec"} if what == "all" else {"interlock"}
    )
    portions = {name for name in modules if name.startswith("interlock.")}
    assert all(name.split(".")[1] == "bus" for name in portions)
    assert {f"interlock.bus.{name}" for name in ("client", "aclient")} <= modules or what != "all"
    assert interlock.bus.__all__
