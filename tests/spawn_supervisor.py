"""A supervisor for tests that only starts workers: `spawn_supervisor.py FOLDER COUNT`.

Every second worker ignores SIGTERM and EOF, every third has two grandchildren in own
sessions. When all run it prints one JSON line with the pids, then runs until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from spawning import running

from interlock.bus import procfs


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def main(folder: Path, count: int) -> None:
    async with running(folder) as bench:
        names = [f"mcp:{number}" for number in range(count)]
        for number, name in enumerate(names):
            order = {
                "stubborn": number % 2 == 1,
                "grandchildren": 2 if number % 3 == 0 else 0,
            }
            bench.spawn(name, order, image="mcp" if number % 4 else "base")
        facts = [await bench.facts_of(name) for name in names]
        for name, one in zip(names, facts, strict=True):
            children = procfs.descendants(one["pid"])
            bench.launcher.record_children(name, 1, children)
        bench.records.flush()
        spawner = bench.launcher.pid
        images = {spawner, *(one["parent"] for one in facts)}
        report = {
            "spawner": spawner,
            "images": sorted(images),
            "workers": [one["pid"] for one in facts],
            "grandchildren": [pid for one in facts for pid in one["grandchildren"]],
        }
        say(json.dumps(report))
        await bench.until("lost", patience=3600)
        say("lost")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
