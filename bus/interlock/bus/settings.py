"""The settings of each worker kind, as configuration names them and as `configure` carries them.

Values are references (`${VAR}`, `${keyring:name}`) until the worker that needs them resolves them,
so a settings object may be logged; a resolved value may not. Unknown keys are reported by the
configuration reader before conversion; here they are ignored.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
UsageCard = tuple[str, ...] | dict[str, tuple[str, ...]]
"""Words and phrases that point to a source, for all languages or by language."""
Size = int | str
"""Bytes as a number, or text such as "8MiB"; `parse_size` in the configuration reader."""


class Timing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every time of the lifecycle, in seconds."""

    hello: Positive = 10.0
    """From the fork to the worker's hello."""
    ping: Positive = 5.0
    """Between two pings; `ping_misses` unanswered in a row mean hung."""
    ping_misses: AtLeastOne = 3
    drain: Seconds = 5.0
    term: Seconds = 8.0
    kill: Seconds = 2.0
    """How long a sweep may take after SIGKILL before it is reported."""
    stop_total: Positive = 20.0
    backoff_first: Positive = 0.25
    backoff_max: Positive = 30.0
    backoff_reset: Seconds = 30.0
    """READY for this long forgets earlier failures."""
    failures: AtLeastOne = 5
    """More failures than this within `failure_window` mean FAILED."""
    failure_window: Positive = 60.0
    failed_retry: Positive = 300.0
    sample: Positive = 30.0
    """Between two resource samples while nobody looks."""
    ticket: Annotated[float, msgspec.Meta(gt=0, le=60)] = 60.0
    circuit_open: Positive = 10.0
    stale: Seconds = 30.0
    """How long the rows of a source that is down stay in the catalog, marked as not connected."""
    approval: Positive = 300.0
    """How long a call waits for a person's answer."""
    away: Positive = 5.0
    """How long the home may be away, as of a disk that comes back, before it is lost."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of one worker's process tree; None = none."""

    memory: Size | None = None
    """Resident bytes of the whole tree; above: restarted with that reason."""
    memory_soft: Size | None = None
    """Above: an event only."""
    open_files: AtLeastOne | None = None
    cpu_seconds: AtLeastOne | None = None
    address_space: Size | None = None
    nice: Annotated[int, msgspec.Meta(ge=-20, le=19)] | None = None
    """None = 5 for mcp workers and their servers, 0 for others."""


class ToolSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an entry says about one tool: `[mcp_servers.X.tools.NAME]`."""

    tier: Literal["safe", "monitor", "ask", "block"] | None = None
    timeout: Positive | None = None


class McpServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One `[mcp_servers.NAME]` entry."""

    type: Literal["stdio", "sse", "streamable_http"] | None = None
    """None: stdio when `command` is set, streamable_http when `url` is."""
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    """Relative paths are resolved against the folder of the file that has the entry."""
    url: str = ""
    headers: dict[str, str] = {}
    api_key_env: str = ""
    enabled: bool = True
    init_timeout: Positive = 60.0
    call_timeout: Positive = 60.0
    call_timeout_max: Positive = 600.0
    concurrency: AtLeastOne = 8
    queue: Count = 64
    max_result: Size = 8 << 20
    tier: Literal["safe", "monitor", "ask", "block"] = "monitor"
    tools: dict[str, ToolSettings] = {}
    disabled_tools: tuple[str, ...] = ()
    usage_card: UsageCard = ()
    description: str = ""
    idle_stop: Seconds = 0
    limits: Limits = Limits()
    placement: Literal["local"] = "local"


class CliArgument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One argument of a command-line tool: `[cli_tools.X.arguments.NAME]`."""

    type: Literal["string", "integer", "number", "boolean", "list"] = "string"
    description: str = ""
    option: str = ""
    """Written before the value, such as `--limit`; empty: the value alone, in the table's order."""
    required: bool = False
    choices: tuple[str, ...] = ()


class CliToolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One `[cli_tools.NAME]` entry: a program that agents may run, never through a shell."""

    command: str = ""
    args: tuple[str, ...] = ()
    """Fixed words, before everything that a call brings."""
    description: str = ""
    subcommands: tuple[str, ...] = ()
    """The only ones that may be run, such as `pr list`; empty: the program decides."""
    arguments: dict[str, CliArgument] = {}
    """Empty: a call brings its words itself, as `args`."""
    env: dict[str, str] = {}
    cwd: str = ""
    enabled: bool = True
    timeout: Positive = 60.0
    max_output: Size = 64 << 10
    concurrency: AtLeastOne = 4
    queue: Count = 16
    tier: Literal["safe", "monitor", "ask", "block"] = "monitor"
    usage_card: UsageCard = ()
    limits: Limits = Limits()

    @property
    def call_timeout(self) -> float:
        """What the catalog knows as a call's time."""
        return self.timeout

    @property
    def call_timeout_max(self) -> float:
        """A program reports no progress, so nothing renews its time."""
        return self.timeout

    @property
    def tools(self) -> dict[str, ToolSettings]:
        """None apart: the entry is its one tool."""
        return {}

    @property
    def disabled_tools(self) -> tuple[str, ...]:
        """None: `enabled = false` takes the tool away."""
        return ()


class CoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the core worker, which no file sets: it is always there."""

    enabled: bool = True
    limits: Limits = Limits()
    call_timeout: float = 30.0
    call_timeout_max: float = 30.0
    tier: Literal["safe", "monitor", "ask", "block"] = "safe"
    disabled_tools: tuple[str, ...] = ()

    @property
    def tools(self) -> dict[str, ToolSettings]:
        """What differs from the tier of all: a write is shown."""
        return {"notes_write": ToolSettings(tier="monitor")}

    @property
    def description(self) -> str:
        """None: what it serves describes itself."""
        return ""

    @property
    def usage_card(self) -> UsageCard:
        """None: it is offered whatever the request."""
        return ()


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One `[agents.NAME]` entry."""

    description: str = ""
    model: str = ""
    """`direct`, or a provider and model; empty: a turn in plain words fails and says what to do."""
    grant: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    focus: tuple[str, ...] = ()
    max_steps: AtLeastOne = 24
    deadline: Positive = 600.0
    enabled: bool = True
    limits: Limits = Limits()


class ArgumentRule(msgspec.Struct, frozen=True, kw_only=True):
    """One `[[policy.rules]]`: the tier of calls whose argument has a certain value."""

    capability: str
    """Pattern of names."""
    argument: str
    """Name of the argument; `a.b` is `b` inside of `a`, `*` is any."""
    matches: str
    """Pattern of the value: `*` and `?` as in file names."""
    tier: Literal["safe", "monitor", "ask", "block"]


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[policy]`: who is asked, and what is forbidden; all lists hold patterns of names."""

    approval: Literal["never", "on_request", "always"] = "on_request"
    block: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    rules: tuple[ArgumentRule, ...] = ()


class SupervisorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[supervisor]`."""

    console: bool = False
    timing: Timing = Timing()
    default_agent: str = "main"
    spawn: Literal["fork", "exec"] = "fork"
    """How workers start: from the warm images, or by executing a fresh Python."""


class McpConfigure(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `configure` for an mcp worker."""

    server: str
    settings: McpServerSettings
    folder: str
    """Absolute folder of the file that has the entry; base of relative paths."""
    results_folder: str
    """Where whole texts of cut results are kept."""
    timing: Timing = Timing()


class AgentConfigure(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `configure` for an agent worker."""

    agent: str
    settings: AgentSettings
    results_folder: str
    """Where the wholes of results are kept that turn items show cut."""
    timing: Timing = Timing()


class CliConfigure(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `configure` for a cli worker; folders as for mcp workers."""

    tool: str
    settings: CliToolSettings
    folder: str
    results_folder: str
    timing: Timing = Timing()


class CoreConfigure(msgspec.Struct, frozen=True, kw_only=True):
    """Body of `configure` for the core worker."""

    notes_folder: str
    timing: Timing = Timing()
