"""Where things are: the home and its files, socket addresses, the connection file, the lock."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Literal

import msgspec

from interlock.bus import procfs
from interlock.bus.errors import (
    AlreadyRunningError,
    ConfigError,
    HomeLockedError,
    NoSupervisorError,
    UsageError,
)
from interlock.bus.locktaker import holds_lock, lock_taker
from interlock.bus.messages import PROTOCOL
from interlock.bus.regular import regular
from interlock.bus.remedies import disk_remedy

_HOME_NOTE: Final = "home"
"""File in a folder of sockets that is elsewhere: the path of the home that it belongs to."""
_LONGEST_NOTE: Final = 8192
MAX_PATH: Final = 107
"""Bytes of the path of a Unix socket."""
MAX_STEM: Final = 32
"""Characters of a file stem."""
_DEEPEST: Final = len("/run/data/") + MAX_STEM + len(".9999999")
_PLAIN_NAME: Final = re.compile(r"([a-z0-9]+):([a-z0-9_-]+)")

Plane = Literal["control", "data", "events", "api"]


def default_home(environ: Mapping[str, str] = os.environ) -> Path:
    """The home that is used when nobody names one: INTERLOCK_HOME, else the user's state folder."""
    named = environ.get("INTERLOCK_HOME", "")
    if named.strip():
        return Path(os.path.abspath(os.path.expanduser(named)))
    if sys.platform == "darwin":
        return Path(os.path.expanduser("~/Library/Application Support/interlock"))
    state = environ.get("XDG_STATE_HOME", "")
    return Path(state if state.strip() else os.path.expanduser("~/.local/state")) / "interlock"


def file_stem(worker: str) -> str:
    """File name for a worker, different for different workers, at most `MAX_STEM` characters.

    >>> file_stem("mcp:git")
    'mcp-git'
    >>> file_stem("mcp:Git Hub")
    'mcp-git-hub~f914ce7507e2'
    """
    plain = _PLAIN_NAME.fullmatch(worker)
    if plain and len(worker) <= MAX_STEM:
        return f"{plain[1]}-{plain[2]}"
    # A plain stem has no tilde, so the two forms never meet; capitals would on some file systems.
    from hashlib import sha256  # OpenSSL is not loaded for the names that nearly all have.

    readable = re.sub(r"[^a-z0-9]+", "-", worker.lower())[: MAX_STEM - 13]
    return f"{readable}~{sha256(worker.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class Home:
    """The folder below which everything of one Interlock lives. `path` is absolute."""

    path: Path

    def __post_init__(self) -> None:
        """Refuse, with UsageError, a path that no message can carry."""
        try:
            str(self.path).encode()
        except UnicodeEncodeError:
            shown = os.fsencode(self.path).decode(errors="backslashreplace")
            raise UsageError(
                f"The path of the home is not UTF-8: {shown}; choose another --home."
            ) from None

    @property
    def connection_file(self) -> Path:
        """Where clients learn the addresses and the key; mode 0600."""
        return self.path / "connection.json"

    @property
    def lock_file(self) -> Path:
        """Held by the supervisor; contains its pid."""
        return self.path / "supervisor.lock"

    @property
    def logs(self) -> Path:
        """One file a worker."""
        return self.path / "logs"

    @property
    def journal(self) -> Path:
        """The SQLite file of turns and calls."""
        return self.path / "journal.sqlite3"

    @property
    def results(self) -> Path:
        """Whole texts of results that were cut."""
        return self.path / "results"

    @property
    def processes(self) -> Path:
        """Records of started processes, for the sweep at the next start."""
        return self.path / "processes.json"

    @property
    def trust(self) -> Path:
        """Which workspace files may act."""
        return self.path / "trust.json"

    @property
    def run(self) -> Path:
        """Folder of the sockets; a short one elsewhere if socket paths would be too long."""
        if len(os.fsencode(self.path)) + _DEEPEST <= MAX_PATH:
            return self.path / "run"
        from hashlib import sha256

        digest = sha256(os.fsencode(self.path)).hexdigest()[:12]
        return _fallback_base() / digest

    def make(self) -> None:
        """Create the home and its folders but for that of the sockets, which needs the lock.

        Raises `ConfigError` as `prepare` does.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(_cannot_make(self.path, error)) from None
        _check_folder(self.path, links=True)
        for folder in (self.logs, self.results):
            _private_folder(folder)
        if self.run_is_elsewhere:
            _private_folder(self.run.parent)

    def prepare(self) -> None:
        """Create the home and all its folders, readable by their owner alone.

        Raises `ConfigError` if a folder belongs to somebody else, is a symbolic link where that is
        dangerous, or cannot be made.
        """
        self.make()
        run = self.run
        for folder in (run, run / "data"):
            _private_folder(folder)
        if self.run_is_elsewhere:
            with contextlib.suppress(OSError):  # only a later start looks for it, to clean up
                (run / _HOME_NOTE).write_bytes(os.fsencode(self.path))

    @property
    def run_is_elsewhere(self) -> bool:
        """Whether the folder of the sockets is not in the home."""
        return self.run.parent != self.path

    @classmethod
    def of_run_folder(cls, folder: Path) -> Home | None:
        """Return the home whose sockets are in that folder elsewhere; None if it does not say so.

        Raises OSError if the folder cannot be read.
        """
        try:
            with open(folder / _HOME_NOTE, "rb", opener=regular) as note:
                home = cls(Path(os.fsdecode(note.read(_LONGEST_NOTE))))
        except FileNotFoundError:
            return None
        return home if home.run == folder else None

    def remove_run(self) -> None:
        """Unlink all sockets, and a folder of them that is elsewhere; for the holder of the lock.

        Raises OSError.
        """
        self.clear_run()
        if self.run_is_elsewhere:
            with contextlib.suppress(FileNotFoundError):
                for folder in (self.run / "data", self.run):
                    folder.rmdir()

    def clear_run(self) -> None:
        """Unlink all sockets. Only for the holder of the lock: a second bind steals silently."""
        for folder in (self.run, self.run / "data"):
            with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)


def endpoint(home: Home, plane: Plane, worker: str = "", generation: int = 0) -> str:
    """Address of a plane; for the data plane that of one generation of `worker`."""
    if plane == "data":
        return f"ipc://{home.run / 'data' / file_stem(worker)}.{generation}"
    return f"ipc://{home.run / plane}"


def unlink_endpoint(address: str) -> None:
    """Remove the socket file of an address whose owner is dead; one that cannot be removed stays.

    Nobody connects to it any more: the next generation has another address.
    """
    with contextlib.suppress(OSError):
        os.unlink(address.removeprefix("ipc://"))


class ConnectionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the connection file says. `key` authenticates api requests and is a secret."""

    version: str
    """Of Interlock."""
    protocol: int
    pid: int
    api: str
    events: str
    key: str
    epoch: str
    home: str
    start: int = 0
    """When the process started, in ticks since the boot of the machine; 0 = unknown."""
    boot_id: str = ""
    """Another text after each boot of the machine; "" = unknown."""

    def __repr__(self) -> str:
        """Show what helps, never the key."""
        return f"ConnectionInfo(pid={self.pid}, api={self.api!r}, epoch={self.epoch!r})"


def read_connection(home: Home) -> ConnectionInfo:
    """Read the connection file.

    Raises `NoSupervisorError` if there is none, it is another user's or it cannot be read, with
    code `protocol` if it speaks a protocol that this version does not.
    """
    try:
        fd = regular(home.connection_file, os.O_RDONLY)
        with open(fd, "rb") as file:
            if os.fstat(fd).st_uid != os.geteuid():
                raise NoSupervisorError(f"{home.connection_file} belongs to another user.")
            data = file.read(1 << 16)
        info = msgspec.json.decode(data, type=ConnectionInfo)
    except FileNotFoundError:
        raise NoSupervisorError(
            f"No supervisor is running on {home.path}; start one with `interlock up`."
        ) from None
    except OSError as error:
        todo = disk_remedy(error.errno, obstacle(home.connection_file))
        raise NoSupervisorError(
            f"{home.connection_file} cannot be read: {error.strerror}. {todo}."
        ) from None
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise NoSupervisorError(
            f"{home.connection_file} cannot be read ({error}); start again with `interlock up`."
        ) from None
    if info.protocol != PROTOCOL:
        raise NoSupervisorError(
            f"The supervisor on {home.path} (Interlock {info.version}) speaks protocol "
            f"{info.protocol}, this program speaks {PROTOCOL}; use the same version for both.",
            code="protocol",
        )
    return info


def write_connection(home: Home, info: ConnectionInfo) -> None:
    """Replace the connection file at once, mode 0600; raises OSError as the file system does."""
    path = home.connection_file
    fresh = path.with_name(f".connection.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(info)) + b"\n")
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


class HomeLock:
    """The right to be the supervisor of a home, from construction to `close`.

    The kernel drops it with the process, so it never needs cleaning up; the file stays. Raises
    `AlreadyRunningError` with the holder's pid, and `HomeLockedError` if that is no supervisor.
    """

    def __init__(self, home: Home) -> None:
        self._path = home.lock_file
        self._fd = _open_lock(self._path)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            unseen = HomeLockedError("A program that `lslocks` may name", str(self._path))
            raise who_holds(home) or unseen from None
        self._folder = os.stat(self._path.parent)
        self.sign()

    def sign(self) -> None:
        """Write the pid into the file again if somebody changed it. Raises OSError."""
        signed = b"%d\n" % os.getpid()
        if os.pread(self._fd, len(signed) + 1, 0) != signed:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, signed, 0)

    def state(self) -> Literal["held", "removed", "gone", "taken"]:
        """Tell whether the lock still means this home.

        "removed": the file in it was; "gone": the home itself; "taken": the file is another one.
        """
        try:
            found = os.stat(self._path, follow_symlinks=False)
        except OSError:
            return "removed" if self.same_home() else "gone"
        if not stat.S_ISREG(found.st_mode):
            return "removed"  # nobody can lock what is no file
        return "held" if os.path.samestat(found, os.fstat(self._fd)) else "taken"

    def same_home(self) -> bool:
        """Whether the folder of the home is the one that was locked, whatever its files are."""
        try:
            return os.path.samestat(os.stat(self._path.parent), self._folder)
        except OSError:
            return False

    def restore(self) -> bool:
        """Lock the home anew after somebody removed or exchanged the lock file alone.

        False: it cannot be had any more, since the home is gone or another supervisor was faster.
        Raises OSError if the file cannot be made or locked.
        """
        if not self.same_home():
            return False
        fresh = _open_lock(self._path)
        try:
            fcntl.flock(fresh, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fresh)
            return False
        except OSError:
            os.close(fresh)
            raise
        before, self._fd = self._fd, fresh
        os.close(before)
        self.sign()
        return True

    def close(self) -> None:
        """Give the home up; doing it twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> HomeLock:
        """Hold the lock for a block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the home up."""
        self.close()


def _open_lock(path: Path) -> int:
    return regular(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)


def lock_holder(home: Home) -> int:
    """Pid of the supervisor that holds the lock of the home; 0 if none does or nobody knows.

    The kernel says so, not a file alone, so it is a supervisor of this home for sure. Only looks:
    to try the lock could keep a supervisor from starting.
    """
    try:
        with open(home.lock_file, "rb", opener=regular) as file:
            pid = int(file.read(20))
        locked = os.stat(home.lock_file)
    except (OSError, ValueError, TypeError):  # a terminal has nothing to read
        return 0
    return pid if holds_lock(pid, locked) else 0


def who_holds(home: Home) -> AlreadyRunningError | None:
    """Return the error that says who holds the lock of the home; None if nobody is seen to.

    A supervisor has signed it; whoever else has it is another program. Only looks.
    """
    holder = lock_taker(home.lock_file)
    if not holder:
        return None
    pid = lock_holder(home)  # after the other look, in which whoever took it just now has signed
    if not pid:
        with contextlib.suppress(NoSupervisorError):  # what it signed may have been overwritten
            pid = holder if read_connection(home).pid == holder else 0
    if pid:
        return AlreadyRunningError(pid, str(home.path))
    named = f"Another program, {procfs.command(holder) or 'process'} (pid {holder}),"
    return HomeLockedError(named, str(home.lock_file))


def obstacle(folder: Path) -> Path:
    """Return the first part of a folder's path that is there and is no folder; else `folder`."""
    parts = (*reversed(folder.parents), folder)
    return next((one for one in parts if os.path.lexists(one) and not one.is_dir()), folder)


def _fallback_base() -> Path:
    # Not TMPDIR and not XDG_RUNTIME_DIR: every process of the user must find the same folder, and
    # it must be short and outlive a login session.
    return Path(f"/tmp/interlock-{os.geteuid()}")


def _private_folder(path: Path) -> None:
    with contextlib.suppress(FileExistsError):
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            raise
        except OSError as error:
            raise ConfigError(_cannot_make(path, error)) from None
    _check_folder(path, links=False)
    if stat.S_IMODE(path.lstat().st_mode) & 0o077:
        path.chmod(0o700)


def _check_folder(path: Path, *, links: bool) -> None:
    found = path.stat() if links else path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{path} is not a folder; remove it or choose another --home.")
    if found.st_uid != os.geteuid():
        raise ConfigError(f"{path} belongs to another user; choose another --home.")


def _cannot_make(path: Path, error: OSError) -> str:
    todo = disk_remedy(error.errno, obstacle(path))
    return f"The folder {path} cannot be made: {error.strerror}. {todo}, or choose another --home."
