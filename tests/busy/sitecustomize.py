"""Put on the path of a supervisor under test: SIGUSR1 makes a process of it run for ever.

The interpreter imports this by itself, so nothing in the product knows of it. A worker inherits it
from the image that it is forked from, or imports it when it is executed.
"""

import signal
from types import FrameType


def _spin(number: int, frame: FrameType | None) -> None:
    while True:
        pass


signal.signal(signal.SIGUSR1, _spin)
