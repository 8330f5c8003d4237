"""Which files of workspaces may act: their path and content as a person saw and accepted them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from interlock.bus.errors import ConfigError, UsageError
from interlock.bus.remedies import disk_remedy
from interlock.supervisor.config.check import texts
from interlock.supervisor.config.model import KINDS, worker_name
from interlock.supervisor.config.text import BadFileError, decode, read_bytes
from interlock.supervisor.home.locking import changing, replace

_REFERENCE = re.compile(r"\$\{(keyring:[^}$]+|[A-Za-z_][A-Za-z0-9_]*+(?=\}|:-))")
"""Without the end of the default: looking for one that is missing takes quadratic time."""
_PROGRAM = re.compile(r"[\w.+-]{1,64}")
"""A name that can be shown; `TOKEN=abc`, or an address, is none."""


def digest(data: bytes) -> str:
    """Return what trust is recorded for: the SHA-256 of the content, hex."""
    return sha256(data).hexdigest()


def trust_key(path: Path) -> str:
    """Return the name of a file in the record: its real folder and its name there.

    A link is recorded where it stands, because relative paths in it count from there.
    """
    return os.path.join(os.path.realpath(path.parent), path.name)


def read_trust(record: Path) -> dict[str, str]:
    """Return the digest of every trusted file; empty if nothing is recorded.

    Raises BadFileError if the record cannot be read: then nothing is trusted.
    """
    data = read_bytes(record)
    if data is None:
        return {}
    try:
        files = json.loads(decode(data))["files"]
        return {str(name): str(entry["sha256"]) for name, entry in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, BadFileError) as error:
        message = "the record of trusted files is damaged, so no workspace file is trusted"
        raise BadFileError("trust_file", message) from error


@contextlib.contextmanager
def changing_trust(record: Path) -> Iterator[dict[str, str]]:
    """Change the record in a block that no other process is in; it is written at the block's end.

    A damaged record counts as empty, as it does for the supervisor. Raises ConfigError if it
    cannot be written.
    """
    with changing(record):
        try:
            trusted = read_trust(record)
        except BadFileError:
            trusted = {}
        yield trusted
        write_trust(record, trusted)


def write_trust(record: Path, trusted: Mapping[str, str]) -> None:
    """Replace the record at once. Raises ConfigError if it cannot be written."""
    now = time.time()
    files = {name: {"sha256": value, "recorded": now} for name, value in sorted(trusted.items())}
    text = json.dumps({"version": 1, "files": files}, indent=2) + "\n"
    try:
        record.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace(record, text.encode())
    except OSError as error:
        todo = disk_remedy(error.errno, record)
        raise ConfigError(f"{record} cannot be written: {error.strerror}. {todo}.") from error


def effects(tables: Mapping[str, Any], *, brief: bool = False) -> list[tuple[str, str]]:
    """Return what a file would do, one (worker or section, plain words) for each entry.

    Of environment variables and headers only the names are shown, and whose values they pass on.
    What is said about approval and grants is shown as it stands, and so are arguments.
    `brief` leaves out arguments and addresses, which may hold secrets, wherever they stand, and
    folders: for places that others read.
    """
    found: list[tuple[str, str]] = []
    for section, entries in tables.items():
        if section in KINDS and isinstance(entries, dict):
            for name, entry in entries.items():
                found.append((_worker(section, name), _entry_effect(section, entry, brief)))
        elif section in ("supervisor", "policy") and isinstance(entries, dict):
            found.append((section, f"set {_values(entries, brief)}"))
    return found


def _values(entries: Mapping[str, Any], brief: bool) -> str:
    if brief:
        return ", ".join(entries) or "nothing"
    return ", ".join(f"{key} = {_value(value)}" for key, value in entries.items()) or "nothing"


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _worker(section: str, name: str) -> str:
    try:
        return worker_name(section, name)
    except UsageError:
        return repr(name)


def _entry_effect(section: str, entry: Any, brief: bool) -> str:
    if not isinstance(entry, dict):
        return "do nothing, for it has a mistake"
    if section == "agents":
        return f"set {_values(entry, brief)}"
    command, url = entry.get("command"), entry.get("url")
    if brief:
        return _in_brief(entry, command, url)
    words = entry.get("args")
    args = [str(word) for word in words] if isinstance(words, list) else []
    if command:
        text = f"start {shlex.join([str(command), *args])}"
    elif url:
        text = f"connect to {url} (not supported yet)"
    else:
        text = f"change {', '.join(entry) or 'nothing'}"
        text += f" (args: {shlex.join(args)})" if args else ""
    return text + _surroundings(entry) + _looser(entry)


def _looser(entry: Mapping[str, Any]) -> str:
    """Return what the entry says about how carefully it is called; empty if it says nothing."""
    keys = ("tier", "disabled_tools", "subcommands")
    found = [f"{key} = {_value(entry[key])}" for key in keys if key in entry]
    tools = entry.get("tools")
    for name, tool in tools.items() if isinstance(tools, dict) else ():
        if isinstance(tool, dict) and "tier" in tool:
            found.append(f"tier of {name} = {_value(tool['tier'])}")
    return f", {', '.join(found)}" if found else ""


def _in_brief(entry: Mapping[str, Any], command: Any, url: Any) -> str:
    if command:
        words = command.split() if isinstance(command, str) else []
        program = os.path.basename(words[0]) if words else ""
        return f"start {program if _PROGRAM.fullmatch(program) else 'a program'}"
    if url:
        return "connect to a server (not supported yet)"
    return f"change {', '.join(entry) or 'nothing'}"


def _given(entry: Mapping[str, Any]) -> list[str]:
    """Return the variables and keyring entries of the user whose values the server would get."""
    tables = [entry[key] for key in ("env", "headers") if isinstance(entry.get(key), dict)]
    found = {name for text in texts(tables) for name in _REFERENCE.findall(text)}
    if isinstance(entry.get("api_key_env"), str) and entry["api_key_env"]:
        found.add(entry["api_key_env"])
    return sorted(found)


def _surroundings(entry: Mapping[str, Any]) -> str:
    text = f" in {entry['cwd']}" if entry.get("cwd") else ""
    for key, words in (("env", "with variables"), ("headers", "with headers")):
        names = entry.get(key)
        if isinstance(names, dict) and names:
            text += f" {words} {', '.join(names)}"
    given = _given(entry)
    if given:
        text += f", which gets the value of {', '.join(given)}"
    return text + (" (disabled)" if entry.get("enabled") is False else "")
