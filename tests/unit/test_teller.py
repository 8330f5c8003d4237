"""Who reads what `interlock up` says must not be able to stop the supervisor."""

from __future__ import annotations

import os
import time

from interlock.supervisor.cli.teller import Teller


def test_lines_come_in_order() -> None:
    hear, tell = os.pipe()
    with Teller(tell) as teller:
        for number in range(100):
            teller.say(f"line {number}\x1b[31m")
    os.close(tell)
    with open(hear) as pipe:
        assert pipe.read().splitlines() == [f"line {number}\\x1b[31m" for number in range(100)]


def test_a_reader_that_is_gone_raises_nothing() -> None:
    hear, tell = os.pipe()
    os.close(hear)
    with Teller(tell) as teller:
        for number in range(100):
            teller.say(f"line {number}")
    os.close(tell)


def test_a_reader_that_reads_nothing_holds_nobody_up() -> None:
    hear, tell = os.pipe()
    started = time.monotonic()
    with Teller(tell) as teller:
        for _ in range(5000):
            teller.say("x" * 1000)
    assert time.monotonic() - started < 10
    os.close(hear)  # which ends the thread that waits
    os.close(tell)
