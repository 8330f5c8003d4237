"""What the kernel says about processes, read from /proc; nothing is cached, nothing raises.

A pid alone names nobody for long, so whoever keeps one keeps its start time beside it. Where /proc
is missing (macOS) every question has the answer of a process that is gone.
"""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple, cast

from interlock.bus.records import Child

TICKS: Final = os.sysconf("SC_CLK_TCK")
"""Kernel ticks per second, the unit of `start_time` and `cpu_ticks`."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_SET_PARENT_DEATH_SIGNAL: Final = 1
_SET_CHILD_SUBREAPER: Final = 36
_COMMAND_LENGTH: Final = 80
_AT_ONCE: Final = 1 << 16
_PYTHON: Final = re.compile(r"(?:python|pypy)[0-9.]*")
_PYTHON_SWITCHES: Final = frozenset({"-B", "-E", "-I", "-O", "-P", "-s", "-S", "-u"})
_INTERPRETER: Final = re.compile(
    r"(?:python|pypy|node|nodejs|bash|dash|sh|zsh|ruby|perl|deno|bun)[0-9.]*"
)


class Stat(NamedTuple):
    """The fields of /proc/PID/stat that are used here; times in ticks."""

    state: str
    parent: int
    cpu: int
    start: int


def stat(pid: int) -> Stat | None:
    """Read the state of a process; None when there is none with that pid."""
    text = _read(f"/proc/{pid}/stat")
    # The program name in brackets may hold spaces and brackets itself.
    fields = text[text.rfind(")") + 2 :].split()
    if len(fields) < 20:
        return None
    return Stat(fields[0], int(fields[1]), int(fields[11]) + int(fields[12]), int(fields[19]))


def start_time(pid: int) -> int | None:
    """Ticks from the boot of the machine to the start of the process; None when it is gone."""
    found = stat(pid)
    return found.start if found else None


def boot_id() -> str:
    """A text that is another one after each boot of the machine; empty where unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def alive(pid: int, start: int) -> bool:
    """Whether that very process still runs; a zombie does not."""
    found = stat(pid)
    return found is not None and found.start == start and found.state not in "ZX"


def children(pid: int) -> list[int]:
    """Pids of the direct children, zombies included.

    A child that exits during the reading may hide another one: who must have all, asks again
    until nothing changes.
    """
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        found.extend(map(int, _read(f"/proc/{pid}/task/{thread}/children").split()))
    return found


def pids_below(pid: int) -> frozenset[int]:
    """Pids of all processes below `pid`; a small part of the work of `descendants`."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in children(waiting.pop()):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return frozenset(found)


def descendants(pid: int) -> list[Child]:
    """All processes below `pid`, parents before their children, zombies included."""
    found: list[Child] = []
    seen = {pid}
    waiting = [pid]
    while waiting:
        for child in children(waiting.pop()):
            start = start_time(child)
            if child in seen or start is None:
                continue
            seen.add(child)
            waiting.append(child)
            found.append(Child(pid=child, start=start, command=command(child)))
    return found


def command(pid: int) -> str:
    """Name of the program that runs, for people; empty when the process is gone.

    For an interpreter it is the script's name. Never the arguments: they may hold secrets. A
    program that writes a title over its command line (npm puts all its arguments there) is called
    by the first word of it.
    """
    words = _read(f"/proc/{pid}/cmdline").split("\0")
    if not words[0]:
        words = [_read(f"/proc/{pid}/comm").strip()]
    return _shown(words, _executable(pid))[:_COMMAND_LENGTH]


def _shown(words: list[str], executable: str) -> str:
    """Choose what of a command line names the program; `executable` is the file that runs. Pure.

    >>> _shown(["/usr/bin/python3.11", "/srv/server.py", "--key", "x"], "/usr/bin/python3.11")
    'server.py'
    >>> _shown(["npm exec server --key x"], "/usr/bin/node")
    'npm'
    >>> _shown(["shodan", "key"], "/usr/bin/shodan"), _shown(["sh", "run"], "/bin/dash")
    ('shodan', 'run')
    >>> _shown(["python3", "-P", "-m", "server", "key"], "/usr/bin/python3.11")
    'server'
    """
    name = os.path.basename(words[0])
    if name != os.path.basename(executable):
        # Perhaps a title; only the name of the file itself may have spaces.
        name = os.path.basename(next(iter(words[0].split()), ""))
    if _INTERPRETER.fullmatch(name) and len(words) > 1:
        if _PYTHON.fullmatch(name):
            words = [word for word in words if word not in _PYTHON_SWITCHES]
            if words[1:2] == ["-m"] and len(words) > 2:
                return words[2]
        if words[1:] and words[1] and not words[1].startswith("-"):
            return os.path.basename(words[1])
    return name


def _read(path: str) -> str:
    """The text of a file of the kernel's; empty when there is none.

    Trees may have thousands of processes: `Path.read_text` takes four times as long.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        parts = [os.read(descriptor, _AT_ONCE)]
        while parts[-1]:
            parts.append(os.read(descriptor, _AT_ONCE))
    except OSError:  # it ended meanwhile
        return ""
    finally:
        os.close(descriptor)
    return b"".join(parts).decode("utf-8", "replace")


def _executable(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def resident_bytes(pids: Iterable[int]) -> int:
    """Sum of the resident memory of these processes; those that are gone count nothing."""
    total = 0
    for pid in pids:
        fields = _read(f"/proc/{pid}/statm").split()
        total += int(fields[1]) * _PAGE if len(fields) > 1 else 0
    return total


def cpu_ticks(pids: Iterable[int]) -> int:
    """Sum of the CPU time, user and system, that these processes used since they started."""
    return sum(found.cpu for pid in pids if (found := stat(pid)) is not None)


def kill(child: Child, number: int = signal.SIGKILL) -> bool:
    """Send a signal to exactly that process; False when it is gone or is not ours.

    Never reaches a stranger that got the same pid meanwhile.
    """
    try:
        handle = os.pidfd_open(child.pid)
    except OSError:
        return False
    try:
        if start_time(child.pid) != child.start:
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def become_subreaper() -> bool:
    """Adopt every orphan below this process from now on; False where the system cannot do it."""
    return _prctl(_SET_CHILD_SUBREAPER, 1)


def set_parent_death_signal(number: int) -> bool:
    """Have the kernel send this process a signal when its parent's thread ends.

    False where the system cannot do it. Call it in the child, and compare `os.getppid()`
    afterwards: the parent may have died before.
    """
    return _prctl(_SET_PARENT_DEATH_SIGNAL, number)


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    return _kernel_prctl()(option, value, 0, 0, 0) == 0


@functools.cache
def _kernel_prctl() -> Callable[[int, int, int, int, int], int]:
    # Loaded once: loading takes locks, which in the child of a process with threads may be held
    # by a thread that the child does not have.
    import ctypes

    call = ctypes.CDLL(None).prctl
    call.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    return cast("Callable[[int, int, int, int, int], int]", call)
