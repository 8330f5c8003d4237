"""The exit codes, and which error ends with which."""

from __future__ import annotations

from typing import Final

from interlock.bus.errors import InterlockError
from interlock.supervisor.cli.interrupts import INTERRUPTED as INTERRUPTED

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NO_SUPERVISOR: Final = 3
DENIED: Final = 4
TIMED_OUT: Final = 5

_BY_CODE: Final = {
    "wrong_usage": USAGE,
    "no_supervisor": NO_SUPERVISOR,
    "denied": DENIED,
    "approval_denied": DENIED,
    "timeout": TIMED_OUT,
}


def code_of(error: InterlockError) -> int:
    """Return the exit code for an error."""
    return _BY_CODE.get(error.code, FAILED)


def code_of_outcome(outcome: str) -> int:
    """Return the exit code for the outcome of a call."""
    return DONE if outcome == "ok" else _BY_CODE.get(outcome, FAILED)
