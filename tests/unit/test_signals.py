"""Which signals ask the supervisor to stop."""

from __future__ import annotations

import signal

import pytest

from interlock.supervisor.spawn import signals


@pytest.mark.parametrize("ignored", [True, False])
def test_a_hangup_that_was_ignored_at_the_start_stays_ignored(ignored: bool) -> None:
    """`nohup interlock up` goes on when its terminal is closed."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        asking = signals.asking_to_stop()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (signal.SIGHUP in asking) is not ignored
    assert {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT} <= set(asking)
