"""What a measured memory use means for a worker; pure."""

from __future__ import annotations

from typing import Literal

from interlock.bus.settings import Limits
from interlock.supervisor.config.sizes import parse_size

Verdict = Literal["fine", "soft", "hard"]


def judge_memory(rss_bytes: int, limits: Limits) -> Verdict:
    """Say whether a process tree keeps to its limits.

    >>> judge_memory(3 << 20, Limits(memory="2MiB", memory_soft="1MiB"))
    'hard'
    """
    if limits.memory is not None and rss_bytes > parse_size(limits.memory):
        return "hard"
    if limits.memory_soft is not None and rss_bytes > parse_size(limits.memory_soft):
        return "soft"
    return "fine"


def over_memory(rss_bytes: int, limit: int | str) -> str:
    """Say in plain words what was exceeded.

    >>> over_memory(3 << 20, "2MiB")
    'used 3 MiB of memory, its limit is 2 MiB'
    """
    return f"used {_mib(rss_bytes)} of memory, its limit is {_mib(parse_size(limit))}"


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.0f} MiB"
