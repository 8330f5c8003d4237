"""Every error that Interlock raises; `code` is what travels on the wire."""

from __future__ import annotations

from typing import Final

OUTCOMES: Final = (
    "ok",
    "tool_error",
    "timeout",
    "unavailable",
    "worker_died",
    "overloaded",
    "cancelled",
    "denied",
    "approval_denied",
    "approval_timeout",
    "approval_unavailable",
    "invalid_arguments",
    "not_found",
)
"""How a capability call can end. Outcomes are returned to callers, never raised."""


class InterlockError(Exception):
    """Root of all errors of Interlock.

    `code` is the stable wire code, `message` one plain sentence for a person that says what to do
    next. Raised by itself for an error reply whose code has no class of its own.
    """

    code: str = "internal"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code


class NoSupervisorError(InterlockError):
    """No supervisor is running on that home: no connection file, or nobody answers behind it."""

    code = "no_supervisor"


class AlreadyRunningError(InterlockError):
    """Another supervisor holds the home."""

    code = "already_running"

    def __init__(self, pid: int, home: str) -> None:
        super().__init__(
            f"A supervisor (pid {pid}) already runs on {home}; "
            "stop it with `interlock down` or choose another --home."
        )
        self.pid = pid


class HomeLockedError(AlreadyRunningError):
    """A program that is no supervisor, such as a backup, holds the lock of the home."""

    def __init__(self, holder: str, lock: str) -> None:
        InterlockError.__init__(
            self,
            f"{holder} holds the lock {lock}, so no supervisor can run there; end that, or choose "
            "another --home.",
        )
        self.pid = 0


class ConnectionLostError(InterlockError):
    """The supervisor stopped answering in the middle of a request or stream."""

    code = "connection_lost"


class UnreachableError(InterlockError):
    """This process cannot make a connection: it has no descriptor or no socket left for one."""

    code = "unavailable"

    def __init__(self, peer: str, why: str) -> None:
        super().__init__(
            f"No connection to {peer} can be made: {why}. Try again when fewer files are open, or "
            "raise the limit of open files."
        )
        self.peer = peer


class RequestTimeoutError(InterlockError):
    """The supervisor did not answer a request within the client's deadline."""

    code = "timeout"


class UsageError(InterlockError):
    """The caller passed something that can never work, whatever the state."""

    code = "wrong_usage"


class UnauthorizedError(InterlockError):
    """The api key of a request is not the one of the connection file."""

    code = "unauthorized"


class NotFoundError(InterlockError):
    """No worker, turn or capability has that name."""

    code = "not_found"


class MalformedError(InterlockError):
    """Bytes from a socket are not a message of their plane."""

    code = "malformed"


class TooLargeError(MalformedError):
    """A frame is over its limit; limits stand in `interlock.bus.messages`."""

    code = "too_large"

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"A frame of {size} bytes is over the limit of {limit} bytes.")
        self.size = size
        self.limit = limit


class TicketError(InterlockError):
    """A ticket does not permit the call; `code` is `denied` for all reasons, `reason` says which.

    Reasons: malformed, forged, expired, revoked, wrong_target, wrong_generation, wrong_caller,
    wrong_name, wrong_arguments, used, not_open.
    """

    code = "denied"

    def __init__(self, reason: str) -> None:
        super().__init__(f"The ticket for this call is not valid: {reason.replace('_', ' ')}.")
        self.reason = reason


class OverloadedError(InterlockError):
    """A bounded queue is full; try again later."""

    code = "overloaded"


class ApprovalClosedError(InterlockError):
    """An approval was decided before, or waits no longer; the answer changed nothing."""

    code = "approval_closed"


class ConfigError(InterlockError):
    """The configuration as a whole cannot be used."""

    code = "config"


class SpawnError(InterlockError):
    """A process could not be started; `code` says why (command_not_found, no_permission, ...)."""

    code = "spawn_failed"


MOST_PROCESSES: Final = "the limit for this user (`ulimit -u`) or for this container"


class ProcessLimitError(InterlockError):
    """No further process or thread can be started; `limit` says in words what is reached."""

    code = "process_limit"

    def __init__(self, limit: str = MOST_PROCESSES) -> None:
        super().__init__(
            f"No further process or thread can be started: {limit} is reached. "
            "End what is not needed, or raise it, and try again."
        )


class JournalError(InterlockError):
    """The journal cannot be written or read, most often because the disk is full.

    `fix`: what to do about it, as a sentence without its full stop; empty if nobody knows.
    """

    code = "journal"

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


class BadTurnError(InterlockError):
    """A turn's text is nothing that its agent can run; nothing of it was run."""

    code = "bad_turn"
