"""What is said of a journal that cannot be written, or was touched: the texts and their codes."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from interlock.bus.errors import JournalError
from interlock.supervisor.events.journalfile import LockedJournalError

FULL: Final = "journal_full"
SLOW: Final = "journal_slow"
DAMAGED: Final = "journal_damaged"
LOST: Final = "journal_items_lost"
REMOVED: Final = "journal_removed"


class Said(NamedTuple):
    """A row for needs attention, in the order in which `Attention` takes its parts."""

    code: str
    message: str
    fix: str


def slow(path: Path) -> Said:
    """A commit was not there in time."""
    return Said(
        SLOW,
        "The journal takes long to write, because its disk is slow or another program has locked "
        "it. Turns do not wait for it: what runs now may be lost with the supervisor.",
        f"End what else has {path} open, or check its disk; it is tried again by itself.",
    )


def items_lost(path: Path) -> Said:
    """Memory had no room any more for what waits to be written."""
    return Said(
        LOST,
        "The journal could not be written for so long that the oldest items were given up.",
        f"Mend what keeps {path} from being written; what was given up is lost.",
    )


def refused(path: Path, error: JournalError) -> Said:
    """The disk does not take what is to be written."""
    if isinstance(error, LockedJournalError):
        fix = f"End the program that has {path} open"
    else:
        fix = error.fix or "Look at the journal and its disk"
        fix += "" if str(path.parent) in fix else f" ({path})"
    return Said(
        FULL,
        f"{error.message} Turns go on, but only in memory: what runs now would be lost with the "
        "supervisor.",
        f"{fix}; it is tried again by itself.",
    )


class Unkept(NamedTuple):
    """What of a run is in memory alone, when that ends."""

    turns: int
    """Those of which not all is on the disk."""
    approvals: int
    calls: int


def not_kept(unkept: Unkept, why: str) -> str:
    """Say in one sentence what is lost because the disk did not take it; empty for nothing.

    >>> not_kept(Unkept(2, 0, 1), "Its disk is full.")
    'Not kept of this run: all or part of 2 turns, 1 call. Its disk is full.'
    """
    parts = [
        f"{'all or part of ' * (name == 'turn')}{number} {name}{'s' * (number != 1)}"
        for name, number in zip(("turn", "approval", "call"), unkept, strict=True)
        if number
    ]
    return f"Not kept of this run: {', '.join(parts)}. {why}" if parts else ""


def removed(path: Path) -> Said:
    """Somebody removed the file or put another one in its place."""
    return Said(
        REMOVED,
        "The journal's file was removed or replaced while the supervisor ran; it was written anew "
        "with all that it had.",
        f"Run `interlock down` before you touch {path}.",
    )


def overwritten(path: Path, kept: Path, whole: bool) -> Said:
    """Somebody wrote into the file; `whole`: nothing of what it held is missing in the new one."""
    what = "all that it had" if whole else "what could still be read of it"
    return Said(
        DAMAGED,
        f"The journal's file was overwritten while the supervisor ran; it was written anew with "
        f"{what}, and the old file is kept as {kept}.",
        f"Look at {kept}, or delete it; run `interlock down` before you touch {path}.",
    )


def begun_anew(error: JournalError, kept: Path) -> Said:
    """The file could not be used."""
    return Said(
        DAMAGED,
        f"{error.message} A new journal was begun; the old file is kept as {kept}.",
        f"Look at {kept}, or delete it.",
    )
