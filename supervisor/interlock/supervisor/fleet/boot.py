"""What a worker is started with: its boot record, its limits and its configure message; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from interlock.bus.endpoints import Home, endpoint, file_stem
from interlock.bus.names import WorkerName
from interlock.bus.records import Boot
from interlock.bus.settings import (
    AgentConfigure,
    CliConfigure,
    CliToolSettings,
    CoreConfigure,
    Limits,
    McpConfigure,
    McpServerSettings,
    Timing,
)
from interlock.supervisor.config.model import (
    AgentEntry,
    CliEntry,
    CoreEntry,
    Entry,
    ServerEntry,
)
from interlock.supervisor.config.sizes import parse_size
from interlock.supervisor.spawn.request import SpawnRequest

SERVING_NICE: Final = 5
"""Servers and programs come after agents and the supervisor where the processor is short."""
OWN_INIT: Final = 30.0
"""Seconds that a worker which waits for no server may take to prepare itself."""
NOTES: Final = "notes"
"""Folder of agents' notes in the home."""
KEYRING_VARIABLES: Final = (
    "DBUS_SESSION_BUS_ADDRESS",
    "PYTHON_KEYRING_BACKEND",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
)
"""What a keyring backend needs to be found."""
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\}")


def kind_of(entry: Entry) -> str:
    """Kind of the worker that an entry describes."""
    match entry:
        case ServerEntry():
            return "mcp"
        case CliEntry():
            return "cli"
        case CoreEntry():
            return "core"
        case AgentEntry():
            return "agent"


def init_budget(entry: Entry) -> float:
    """Seconds that the worker allows itself to get ready."""
    return entry.settings.init_timeout if isinstance(entry, ServerEntry) else OWN_INIT


def boot_record(
    home: Home, name: str, entry: Entry, generation: int, nonce: str, token: str
) -> Boot:
    """Make the boot record of a new generation; `nonce` and `token` are random."""
    limits = entry.settings.limits
    kind = kind_of(entry)
    default = SERVING_NICE if kind in ("mcp", "cli") else 0
    return Boot(
        name=name,
        kind=kind,
        generation=generation,
        nonce=nonce,
        token=token,
        control=endpoint(home, "control"),
        home=str(home.path),
        log=str(home.logs / f"{file_stem(name)}.log"),
        nice=default if limits.nice is None else limits.nice,
        image="mcp" if kind == "mcp" else "base",
    )


def spawn_request(boot: Boot, entry: Entry) -> SpawnRequest:
    """Say what the spawner is to start."""
    limits: Limits = entry.settings.limits
    return SpawnRequest(
        boot=boot,
        keep_env=named_variables(entry.settings)
        if isinstance(entry, (ServerEntry, CliEntry))
        else (),
        open_files=limits.open_files,
        cpu_seconds=limits.cpu_seconds,
        address_space=None if limits.address_space is None else parse_size(limits.address_space),
    )


def configure_body(home: Home, name: str, entry: Entry, timing: Timing) -> bytes:
    """Write the body of `configure` and `apply`: the kind's settings, as JSON."""
    short = short_id(name)
    if isinstance(entry, AgentEntry):
        return msgspec.json.encode(
            AgentConfigure(
                agent=short,
                settings=entry.settings,
                results_folder=str(home.results / file_stem(name)),
                timing=timing,
            )
        )
    if isinstance(entry, CoreEntry):
        return msgspec.json.encode(
            CoreConfigure(notes_folder=str(home.path / NOTES), timing=timing)
        )
    if isinstance(entry, CliEntry):
        return msgspec.json.encode(
            CliConfigure(
                tool=short,
                settings=entry.settings,
                folder=entry.folder,
                results_folder=str(home.results / file_stem(name)),
                timing=timing,
            )
        )
    return msgspec.json.encode(
        McpConfigure(
            server=short,
            settings=entry.settings,
            folder=entry.folder,
            results_folder=str(home.results / file_stem(name)),
            timing=timing,
        )
    )


def short_id(name: str) -> str:
    """The name of an entry as its file has it, from the name of its worker."""
    return WorkerName.parse(name).id


def named_variables(settings: McpServerSettings | CliToolSettings) -> tuple[str, ...]:
    """Names of the environment variables that an entry asks for, sorted.

    >>> named_variables(McpServerSettings(env={"TOKEN": "", "URL": "${HOST:-localhost}/x"}))
    ('HOST', 'TOKEN')
    """
    texts = list(_texts(settings))
    names = {name for text in texts for name in _VARIABLE.findall(text)}
    names |= {name for name, value in settings.env.items() if value == ""}
    if isinstance(settings, McpServerSettings) and settings.api_key_env:
        names.add(settings.api_key_env)
    if any("${keyring:" in text for text in texts):
        names |= set(KEYRING_VARIABLES)
    return tuple(sorted(names))


def _texts(settings: McpServerSettings | CliToolSettings) -> Iterator[str]:
    yield from (settings.command, settings.cwd, *settings.args, *settings.env.values())
    if isinstance(settings, McpServerSettings):
        yield from (settings.url, *settings.headers.values())
