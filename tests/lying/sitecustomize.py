"""Put on the path of a supervisor under test: SIGUSR2 makes a worker of it say what LIES holds.

LIES names a file with Python text that defines `async def lie(host)`. The interpreter imports this
by itself, so nothing in the product knows of it; a worker inherits it from its image.
"""

import gc
import os
import signal
from pathlib import Path
from types import FrameType
from typing import Any

_LIES = Path(os.environ.get("LIES", ""))


def _lie(number: int, frame: FrameType | None) -> None:
    host = next(one for one in gc.get_objects() if type(one).__name__ == "WorkerHost")
    said: dict[str, Any] = {}
    exec(_LIES.read_text(), said)
    loop = host._loop
    loop.call_soon_threadsafe(lambda: host.background(said["lie"](host), "lies"))


if "LIES" in os.environ:
    signal.signal(signal.SIGUSR2, _lie)
