"""What the supervisor looks at by the clock: pings and memory limits."""

from __future__ import annotations

import asyncio
import time

from interlock.bus.messages import Ping
from interlock.supervisor.attention import Attention, Row
from interlock.supervisor.fleet import Fleet
from interlock.supervisor.lifecycle import inputs
from interlock.supervisor.limits import judge_memory, over_memory
from interlock.supervisor.pings import PingClock
from interlock.supervisor.resources import Sampler


async def ping_workers(fleet: Fleet, clock: PingClock) -> None:
    """Ping all workers in one tick, every `timing.ping`; end the hung ones. Until cancelled."""
    while True:
        interval = fleet.timing.ping
        await asyncio.sleep(interval)
        up = [(member.worker.name, member.worker.generation) for member in fleet.up()]
        misses = fleet.timing.ping_misses
        pinged, hung = clock.tick(time.monotonic(), interval, misses, up)
        for name, generation in pinged:
            fleet.send(name, generation, Ping(n=clock.n))
        for name, generation in hung:
            event = inputs.Hung(now=time.monotonic(), generation=generation, misses=misses)
            fleet.feed(name, event)


async def watch_limits(fleet: Fleet, sampler: Sampler, attention: Attention) -> None:
    """Measure, every `timing.sample`, the workers that have a memory limit. Until cancelled."""
    while True:
        await asyncio.sleep(fleet.timing.sample)
        limited = [
            member
            for member in fleet.up()
            if member.entry.settings.limits.memory is not None
            or member.entry.settings.limits.memory_soft is not None
        ]
        if not limited:
            continue
        usage = sampler.sample(fleet.pids())
        for member in limited:
            name, limits = member.worker.name, member.entry.settings.limits
            rss = usage[name].rss_bytes
            verdict = judge_memory(rss, limits)
            if verdict == "hard" and limits.memory is not None:
                generation, now = member.worker.generation, time.monotonic()
                reason = over_memory(rss, limits.memory)
                fleet.feed(
                    name, inputs.LimitExceeded(now=now, generation=generation, reason=reason)
                )
            elif verdict == "soft" and limits.memory_soft is not None:
                message = f"{name} {over_memory(rss, limits.memory_soft)}."
                fix = f"Raise limits.memory_soft of {name} or restart it."
                attention.set(Row(name=name, code="memory_soft", message=message, fix=fix))
            else:
                attention.clear(name, "memory_soft")
