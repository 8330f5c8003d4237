"""A server whose lists change at every reading is read less and less often."""

from __future__ import annotations

from itertools import pairwise

from interlock.workers.mcp.pace import AT_MOST, BETWEEN, DELAY, QUICK, ListPace


def readings(pace: ListPace, start: float, count: int) -> list[float]:
    """When a list is read that changes each time."""
    now, seen = start, []
    for _ in range(count):
        pace.changed(now)
        now += pace.delay(now)
        seen.append(now)
    return seen


def test_the_time_between_readings_doubles_to_a_minute() -> None:
    pace = ListPace()
    seen = [0.0, *readings(pace, 0.0, QUICK + 9)]
    between = [round(after - before) for before, after in pairwise(seen)]
    assert between == [BETWEEN] * QUICK + [2, 4, 8, 16, 32] + [AT_MOST] * 4
    assert pace.slow


def test_a_server_that_is_quiet_is_read_at_once_again() -> None:
    pace = ListPace()
    last = readings(pace, 0.0, 20)[-1]
    pace.look(last)
    assert pace.slow
    pace.look(last + 2 * AT_MOST)
    assert not pace.slow and pace.delay(last + 2 * AT_MOST) == DELAY


def test_changes_now_and_then_slow_nothing_down() -> None:
    pace = ListPace()
    for n in range(100):
        pace.changed(10.0 * n)
    assert not pace.slow and pace.delay(995.0) == DELAY
