"""A spawner with its warm images, for tests of workers without a supervisor.

A worker that is forked here is ready in a tenth of the time that a fresh Python needs to import
the SDK, and it starts the way that it does in use.
"""

from __future__ import annotations

import atexit
import functools
import os
import select
import signal
import socket
import subprocess
import sys

import msgspec

from interlock.bus.records import Boot
from interlock.supervisor.spawn.launcher import WARM_ENTRY
from interlock.supervisor.spawn.protocol import (
    MAX_RECORD,
    Exited,
    ImageReady,
    Reap,
    Spawn,
    Spawned,
    Up,
    decode_up,
    encode,
    make_link,
)
from interlock.supervisor.spawn.request import WORKER_ENTRY

PATIENCE = 30.0


class WarmImages:
    """The spawner, and at most one worker of either image at a time."""

    def __init__(self) -> None:
        pairs = {name: make_link() for name in ("base", "mcp")}
        self._links = {name: pair[0] for name, pair in pairs.items()}
        theirs = [pair[1] for pair in pairs.values()]
        numbers = [end.fileno() for end in theirs]
        module = "interlock.supervisor.spawn.spawner"
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *map(str, numbers), WARM_ENTRY],
            pass_fds=numbers,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        for end in theirs:
            end.close()
        for name in self._links:
            ready, _ = self.receive(name)
            assert isinstance(ready, ImageReady) and not ready.problem, ready

    def close(self) -> None:
        """End the spawner, with all that it started."""
        for link in self._links.values():
            link.close()
        self._process.wait(PATIENCE)

    def spawn(self, boot: Boot) -> ForkedWorker:
        """Fork a worker from the image that the boot record names."""
        order = Spawn(
            name=boot.name,
            generation=boot.generation,
            boot=msgspec.msgpack.encode(boot),
            entry=WORKER_ENTRY,
            title=f"interlock: {boot.name}",
            log=boot.log,
            nice=boot.nice,
        )
        self._links[boot.image].send(encode(order))
        answer, handles = self.receive(boot.image)
        assert isinstance(answer, Spawned), answer
        return ForkedWorker(self, boot.image, answer.pid, handles[0])

    def receive(self, image: str, seconds: float = PATIENCE) -> tuple[Up, list[int]]:
        """Wait for the next record of an image; return it with the descriptors it brought."""
        link = self._links[image]
        assert select.select([link], [], [], seconds)[0], f"no word from the image {image}"
        data, handles, _, _ = socket.recv_fds(link, MAX_RECORD, 1)
        return decode_up(data), handles

    def reap(self, image: str, pid: int) -> None:
        """Let the image reap a worker that it told the end of."""
        self._links[image].send(encode(Reap(pid=pid)))


@functools.cache
def warm_images() -> WarmImages:
    """The images that all tests of this process share; they end with it."""
    images = WarmImages()
    atexit.register(images.close)
    return images


class ForkedWorker:
    """A worker process; has the part of `subprocess.Popen` that the tests use."""

    def __init__(self, images: WarmImages, image: str, pid: int, handle: int) -> None:
        self.pid = pid
        self._images = images
        self._image = image
        self._handle = handle
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, None while the worker runs."""
        if self._code is None and select.select([self._handle], [], [], 0)[0]:
            return self.wait()
        return self._code

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait for the end; negative: the number of the signal that it was."""
        if self._code is None:
            ended, _ = self._images.receive(self._image, timeout)
            assert isinstance(ended, Exited) and ended.pid == self.pid, ended
            self._images.reap(self._image, self.pid)
            os.close(self._handle)
            self._code = -ended.signal if ended.signal is not None else ended.exit_code
        assert self._code is not None
        return self._code

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        signal.pidfd_send_signal(self._handle, number)
