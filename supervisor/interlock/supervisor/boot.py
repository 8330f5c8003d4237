"""What a worker is started with: its boot record, its limits and its configure message; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from interlock.bus.endpoints import Home, endpoint, file_stem
from interlock.bus.records import Boot
from interlock.bus.settings import AgentConfigure, Limits, McpConfigure, McpServerSettings, Timing
from interlock.supervisor.config.model import AgentEntry, ServerEntry
from interlock.supervisor.config.sizes import parse_size
from interlock.supervisor.spawn.launcher import SpawnRequest

Entry = ServerEntry | AgentEntry

MCP_NICE: Final = 5
"""Servers come after agents and the supervisor where the processor is short."""
AGENT_INIT: Final = 30.0
"""Seconds that an agent may take to prepare itself."""
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
    return "mcp" if isinstance(entry, ServerEntry) else "agent"


def init_budget(entry: Entry) -> float:
    """Seconds that the worker allows itself to get ready."""
    return entry.settings.init_timeout if isinstance(entry, ServerEntry) else AGENT_INIT


def boot_record(
    home: Home, name: str, entry: Entry, generation: int, nonce: str, token: str
) -> Boot:
    """Make the boot record of a new generation; `nonce` and `token` are random."""
    limits = entry.settings.limits
    kind = kind_of(entry)
    default = MCP_NICE if kind == "mcp" else 0
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
        keep_env=named_variables(entry.settings) if isinstance(entry, ServerEntry) else (),
        open_files=limits.open_files,
        cpu_seconds=limits.cpu_seconds,
        address_space=None if limits.address_space is None else parse_size(limits.address_space),
    )


def configure_body(home: Home, name: str, entry: Entry, timing: Timing) -> bytes:
    """Write the body of `configure` and `apply`: the kind's settings, as JSON."""
    short = name.partition(":")[2]
    if isinstance(entry, AgentEntry):
        return msgspec.json.encode(
            AgentConfigure(agent=short, settings=entry.settings, timing=timing)
        )
    return msgspec.json.encode(
        McpConfigure(
            server=short,
            settings=entry.settings,
            folder=entry.folder,
            results_folder=str(home.results),
            timing=timing,
        )
    )


def named_variables(settings: McpServerSettings) -> tuple[str, ...]:
    """Names of the environment variables that an entry asks for, sorted.

    >>> named_variables(McpServerSettings(env={"TOKEN": "", "URL": "${HOST:-localhost}/x"}))
    ('HOST', 'TOKEN')
    """
    texts = list(_texts(settings))
    names = {name for text in texts for name in _VARIABLE.findall(text)}
    names |= {name for name, value in settings.env.items() if value == ""}
    if settings.api_key_env:
        names.add(settings.api_key_env)
    if any("${keyring:" in text for text in texts):
        names |= set(KEYRING_VARIABLES)
    return tuple(sorted(names))


def _texts(settings: McpServerSettings) -> Iterator[str]:
    values: Iterable[str] = (
        settings.command,
        settings.cwd,
        settings.url,
        *settings.args,
        *settings.env.values(),
        *settings.headers.values(),
    )
    yield from values
