from __future__ import annotations

from interlock.supervisor.fleet.pings import PingClock

X, Y = ("mcp:x", 1), ("mcp:y", 1)


def test_three_unanswered_pings_mean_hung() -> None:
    clock = PingClock(0.0)
    for tick in (5.0, 10.0, 15.0):
        assert clock.tick(tick, 5.0, 3, [X, Y]) == ([X, Y], [])
        clock.answered(Y)
    assert clock.tick(20.0, 5.0, 3, [X, Y]) == ([Y], [X])


def test_one_answer_starts_the_count_again() -> None:
    clock = PingClock(0.0)
    for number in range(1, 20):
        assert clock.tick(5.0 * number, 5.0, 3, [X])[1] == []
        if number % 3 == 0:
            clock.answered(X)


def test_a_supervisor_that_was_late_blames_nobody() -> None:
    clock = PingClock(0.0)
    for tick in (5.0, 10.0, 15.0):
        clock.tick(tick, 5.0, 3, [X])
    assert clock.tick(60.0, 5.0, 3, [X]) == ([X], [])
    for tick in (65.0, 70.0):
        assert clock.tick(tick, 5.0, 3, [X])[1] == []
    assert clock.tick(75.0, 5.0, 3, [X])[1] == [X]


def test_a_new_generation_starts_at_nothing() -> None:
    clock = PingClock(0.0)
    for tick in (5.0, 10.0, 15.0):
        clock.tick(tick, 5.0, 3, [X])
    assert clock.tick(20.0, 5.0, 3, [("mcp:x", 2)]) == ([("mcp:x", 2)], [])
    clock.answered(X)  # of a generation that is gone
