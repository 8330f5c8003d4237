"""What exactly to start for an entry: where its program is, what it may see, in which folder."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from interlock.bus.regular import regular
from interlock.bus.searchpath import WHOLE_COMMAND, not_there, search_path, source_hint
from interlock.bus.settings import Limits
from interlock.workers.failure import WorkerError
from interlock.workers.secrets import (
    OWN_PREFIX,
    Masks,
    environment,
    hide_literals,
    resolve,
    resolve_entries,
)

INHERITED: Final = frozenset(
    "PATH HOME USER LOGNAME SHELL LANG TMPDIR TERM TZ "
    "HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy "
    "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS".split()
)
"""What a program sees of the environment besides LC_* and what its entry names."""


class Command(NamedTuple):
    """What to start. `env` is complete; `cwd` is absolute."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    limits: Limits
    address_space: int | None = None
    """Bytes, from `limits.address_space`."""


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what every program may see of `environ`.

    >>> base_environment({"LC_ALL": "C", "HOME": "/h", "OPENAI_API_KEY": "x"})
    {'LC_ALL': 'C', 'HOME': '/h'}
    """
    return {k: v for k, v in environ.items() if k in INHERITED or k.startswith("LC_")}


def find_command(command: str, cwd: str, folders: Sequence[str]) -> str:
    """Return the absolute path of `command`.

    With a slash in it, it is relative to `cwd`. Raises WorkerError: command_not_found,
    no_permission; both permanent.
    """
    if not command.strip():
        raise WorkerError(
            "command_not_found",
            "`command` is empty as it is resolved now",
            fix="Set the variable that it refers to before `interlock up`, or write the program.",
            permanent=True,
        )
    expanded = os.path.expanduser(command)
    if os.sep in expanded:
        candidates = [os.path.join(cwd, expanded)]
    else:
        candidates = [os.path.join(folder, expanded) for folder in folders]
    found = shutil.which(expanded, path=os.pathsep.join(folders))
    if os.sep in expanded:
        found = candidates[0] if os.access(candidates[0], os.X_OK) else None
    if found and os.path.isfile(found):
        return os.path.abspath(found)
    present = [path for path in candidates if os.path.exists(path)]
    if present:
        raise _cannot_run(next((path for path in present if os.path.isfile(path)), present[0]))
    program, *more = command.split(maxsplit=1) or [command]
    if more:  # they may hold a secret, as arguments do
        raise WorkerError(
            "command_not_found",
            f"command not found: {program} and what follows it in `command`",
            fix=WHOLE_COMMAND,
            permanent=True,
        )
    raise WorkerError(
        "command_not_found",
        f"command not found: {command}",
        fix=source_hint(command) + not_there(command),
        permanent=True,
        details=f"Looked for {', '.join(candidates)}.",
    )


def _cannot_run(path: str) -> WorkerError:
    """Say why something that is there is not started; what is no program is not made one."""
    reason, fix = f"no permission to run {path}", "Ask its owner, or choose another program."
    if os.path.isdir(path):
        reason = f"{path} is a folder, not a program"
        fix = "Write the path of the program in it as `command`."
    elif os.access(path, os.X_OK):
        reason, fix = f"{path} is no file", "Write the path of a program as `command`."
    elif _is_program(path):
        fix = f"Make it an executable file: `chmod +x {shlex.quote(path)}`."
    elif os.access(path, os.R_OK):
        reason = f"{path} is no program that can be run"
        fix = "Write the program that runs it as `command`, and its path into `args`."
    return WorkerError("no_permission", reason, fix=fix, permanent=True)


def _is_program(path: str) -> bool:
    """Tell whether a file begins as scripts and compiled programs do."""
    try:
        descriptor = regular(path, os.O_RDONLY)
    except OSError:
        return False
    with open(descriptor, "rb") as file:
        return os.path.isfile(path) and file.read(4).startswith((b"#!", b"\x7fELF"))


def size_in_bytes(size: int | str | None) -> int | None:
    """Return a size that the configuration reader has turned into bytes. Raises WorkerError."""
    if isinstance(size, str):
        raise WorkerError("config", f"the size {size!r} was not read as bytes", permanent=True)
    return size


class Wanted(NamedTuple):
    """The keys of an entry that say what to start; values may hold references."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    limits: Limits


async def build_program(where: str, base: str, wanted: Wanted, masks: Masks) -> Command:
    """Resolve the references of the entry `where` and find its program; `base`: its folder.

    Raises WorkerError, always permanent: secret_unresolved, bad_cwd, command_not_found,
    no_permission, config.
    """
    own = environment()
    env = base_environment(own)
    hide_literals((value for key, value in env.items() if key.lower().endswith("_proxy")), masks)
    named = {key: value for key, value in wanted.env.items() if not key.startswith(OWN_PREFIX)}
    env |= await resolve_entries(named, own, masks, f"{where}.env")
    program = await resolve(wanted.command, own, masks, f"{where}.command")
    args = [await resolve(arg, own, masks, f"{where}.args") for arg in wanted.args]
    hide_literals(args, masks)
    cwd = working_folder(base, await resolve(wanted.cwd, own, masks, f"{where}.cwd"), where)
    path = find_command(program, cwd, search_path(env))
    folder = os.path.dirname(path)
    if folder not in env.get("PATH", "").split(os.pathsep):
        # A program found outside PATH (npx) needs what stands beside it (node).
        env["PATH"] = os.pathsep.join(filter(None, (env.get("PATH", os.defpath), folder)))
    space = size_in_bytes(wanted.limits.address_space)
    return Command((path, *args), env, cwd, wanted.limits, space)


def working_folder(base: str, cwd: str, where: str) -> str:
    """Return the absolute folder of `cwd` below `base`. Raises WorkerError: bad_cwd."""
    folder = os.path.join(base, os.path.expanduser(cwd))
    if not os.path.isdir(folder):
        raise WorkerError(
            "bad_cwd",
            f"the folder {folder} of {where} does not exist",
            fix="Create it, or correct `cwd`.",
            permanent=True,
        )
    return folder
