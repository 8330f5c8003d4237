"""How a worker says that it cannot do its job."""

from __future__ import annotations

from interlock.bus.errors import InterlockError


class WorkerError(InterlockError):
    """A worker cannot do its job; the host reports it as `failed` and exits with status 1.

    `reason` is one plain sentence for `interlock status`, kept without its full stop, `fix` what
    the user can do about it.
    `permanent` means that starting it again soon cannot help. `details` are for the log alone.
    """

    code = "worker_failed"

    def __init__(
        self, code: str, reason: str, *, fix: str = "", permanent: bool = False, details: str = ""
    ) -> None:
        super().__init__(reason, code=code)
        self.reason = reason.rstrip(".")  # it becomes a part of sentences
        self.fix = fix
        self.permanent = permanent
        self.details = details
