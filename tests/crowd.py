"""Many connections to one socket at once, from processes of their own.

    with Crowd(path, 1100) as crowd:
        crowd.wait_asked()

`introduced`: they say who they are, as a
ZeroMQ socket of that type does, and then nothing more; else they are silent from the start.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from zmtp import GREETING, PATIENCE, ready

EACH = 400
"""Connections of one process, which may have few descriptors itself."""
_AGAIN = 0.001


class Crowd:
    """The connections, from the beginning of the block to its end."""

    def __init__(self, path: Path, count: int, *, introduced: str = "") -> None:
        speech = GREETING + ready(introduced.encode()) if introduced else b""
        self._parts = [
            subprocess.Popen(
                [sys.executable, __file__, str(path), str(min(EACH, count - begun)), speech.hex()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for begun in range(0, count, EACH)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for part in self._parts:
            part.kill()
            part.wait()
            for pipe in (part.stdin, part.stdout):
                if pipe is not None:
                    pipe.close()

    def wait_asked(self) -> None:
        """Wait until every connection was asked for, successfully or not."""
        for part in self._parts:
            assert part.stdout is not None
            came, _, _ = select.select([part.stdout], [], [], PATIENCE)
            assert came and part.stdout.readline() == b"asked\n"


def main(path: str, count: int, speech: bytes) -> None:
    """Connect that often, as fast as possible; who is refused tries again and again."""
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(count)]
    crowd = []
    for one in waiting:
        one.setblocking(False)
    asked = False
    while waiting:
        for one in tuple(waiting):
            try:
                one.connect(path)
                one.send(speech)
            except BlockingIOError:
                continue  # the queue is full
            waiting.remove(one)
            crowd.append(one)
        if not asked:
            asked = True
            print("asked", flush=True)  # noqa: T201 - it is how the test hears of it
        time.sleep(_AGAIN)
    sys.stdin.read()  # until the end


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3]))
