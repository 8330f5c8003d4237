"""Turns merged tables into settings; an entry with a mistake is left out alone; pure."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, TypeVar

import msgspec

from interlock.bus.errors import UsageError
from interlock.bus.searchpath import WHOLE_COMMAND
from interlock.bus.settings import (
    AgentSettings,
    CliToolSettings,
    McpServerSettings,
    PolicySettings,
    SupervisorSettings,
)
from interlock.supervisor.config.check import Checker, is_name, kind_of, texts
from interlock.supervisor.config.clitools import cli_faults
from interlock.supervisor.config.instead import below_policy
from interlock.supervisor.config.lines import Path
from interlock.supervisor.config.meant import (
    MOST_UNKNOWN,
    SECTIONS,
    TOO_MANY,
    forbidding_message,
    misplaced_message,
    section_meant,
    too_many,
    unknown_message,
)
from interlock.supervisor.config.merge import Merged
from interlock.supervisor.config.model import (
    AgentEntry,
    CliEntry,
    CoreEntry,
    LayerFile,
    Origin,
    Problem,
    ServerEntry,
    Settings,
    worker_name,
)
from interlock.supervisor.config.placeholders import unfilled
from interlock.supervisor.config.sizes import parse_size
from interlock.supervisor.policy.decision import CarefulPolicy

_S = TypeVar("_S", bound=msgspec.Struct)

_REACH: Final = 'give the entry `command = "PROGRAM"` or `url = "https://..."`'
MAX_NAME: Final = 200
"""Characters of the name of a server or agent."""

RESTRICTING: Final = frozenset({"policy", "agents", "mcp_servers", "cli_tools"})
"""Sections that may forbid something, or make it ask."""
_STRICT: Final = frozenset({"block", "ask", "approval", "rules"})
"""Keys of policy of which a default permits more than what somebody wrote."""
WARNINGS: Final = frozenset(
    "unknown_key shadowed unknown_agent whole_command own_variable not_supported".split()
)
"""Codes of problems after which the entry still runs."""
MODELS: Final = frozenset({"", "direct"})
"""Models that an agent can have; without one its turns say what to configure."""
OWN_PREFIX: Final = "INTERLOCK_"

_SIZES: Final = (
    ("max_result",),
    ("max_output",),
    ("limits", "memory"),
    ("limits", "memory_soft"),
    ("limits", "address_space"),
)


def validate(
    merged: Merged, folder: str, *, incomplete: bool = False
) -> tuple[Settings, list[Problem]]:
    """Return the settings that can be used and every problem found on the way.

    `folder` is the base of relative paths for entries that no file has, and where servers of the
    user's own file run. `incomplete`: a whole file is missing that should count, and with it,
    perhaps, what it forbids.
    """
    return _Validation(merged, folder, incomplete).run()


def policy_is_unread(problem: Problem) -> bool:
    """Tell whether a problem means that something which policy forbids may not be known."""
    section, _, below = problem.key.partition(".")
    if section == "supervisor" and problem.code == "unread_key":
        return True
    if problem.severity != "error" or section != "policy":
        return False
    return not below or problem.code == "unread_key" or below.partition(".")[0] in _STRICT


def _until(key: str) -> str:
    return "; until it is mended every capability asks" if key in RESTRICTING else ""


def _message_of_top_level(key: str, value: Any) -> str:
    """The sentence about a key that stands in no section and may forbid something."""
    inside = PolicySettings.__struct_fields__
    if not isinstance(value, dict) and key in (*inside, "deny", "grant"):
        return misplaced_message(key)
    return forbidding_message(key, SECTIONS if isinstance(value, dict) else inside)


class _Validation:
    """One pass over all sections."""

    def __init__(self, merged: Merged, folder: str, incomplete: bool) -> None:
        self.merged = merged
        self.lost = merged.lost()
        self.incomplete = incomplete
        self.folder = folder
        self.problems: list[Problem] = []
        self.entry = ""
        self.unknown: Counter[str] = Counter()
        """By file how many unknown keys were looked at."""

    def _room(self, path: Path) -> bool:
        layer, _ = self.merged.place(path)
        file = layer.file if layer else ""
        self.unknown[file] += 1
        return self.unknown[file] <= MOST_UNKNOWN

    def run(self) -> tuple[Settings, list[Problem]]:
        self._misplaced()
        settings = Settings(
            supervisor=self._section("supervisor", SupervisorSettings),
            policy=self._policy(),
            mcp_servers=self._servers(),
            cli_tools=self._cli_tools(),
            agents=self._agents(),
            core=CoreEntry(),
        )
        self._default_agent(settings)
        if settings.supervisor.console:
            message = "console is not supported yet: there is no web page"
            self.report("not_supported", ("supervisor", "console"), message, "remove it")
        return settings, self.problems

    def report(self, code: str, path: Path, message: str, fix: str = "") -> None:
        """Note a problem at a key path, with the place of that key."""
        layer, line = self.merged.place(path)
        warning = code in WARNINGS
        problem = Problem(
            file=layer.file if layer else "",
            line=line,
            key=".".join(path),
            message=message,
            severity="warning" if warning else "error",
            code=code,
            fix=fix,
            entry="" if warning else self.entry,
        )
        if policy_is_unread(problem):
            problem = msgspec.structs.replace(problem, message=f"{message}{_until('policy')}")
        self.problems.append(problem)

    def _misplaced(self) -> None:
        for layer, key, value in self.merged.misplaced:
            problem = Problem(
                file=layer.file,
                line=layer.lines.get((key,), 0),
                key=key,
                message=f"{key} must be a table, not {kind_of(value)}{_until(key)}",
                code="wrong_type",
            )
            meant = "" if key in SECTIONS else section_meant(key)
            if meant in RESTRICTING:
                problem = msgspec.structs.replace(
                    problem,
                    message=f"{_message_of_top_level(key, value)}{_until(meant)}",
                    code="unread_key",
                    fix="" if isinstance(value, dict) else below_policy(key),
                )
            elif key not in SECTIONS:
                problem = msgspec.structs.replace(
                    problem,
                    message=unknown_message(key, SECTIONS),
                    severity="warning",
                    code="unknown_key",
                )
            self.problems.append(problem)
        for layer, more in self.merged.more:
            message = f"{too_many(more)}{_until('policy')}"
            self.problems.append(
                Problem(
                    file=layer.file,
                    line=0,
                    key="policy",
                    message=message,
                    severity="error",
                    code="unread_key",
                    fix=TOO_MANY,
                )
            )
        for path in self.merged.shadowed:
            message = f"this entry replaces the server {path[-1]} of .mcp.json"
            self.report("shadowed", path, message)

    def _section(self, name: str, type_: type[_S]) -> _S:
        """Return a section; keys with a mistake keep their default."""
        good = Checker(self.report, self._room).struct(type_, self.merged.sections[name], (name,))
        return msgspec.convert(good, type_)

    def _policy(self) -> PolicySettings:
        policy = self._section("policy", PolicySettings)
        for n, rule in enumerate(policy.rules, 1):
            for key in ("capability", "argument"):
                if not getattr(rule, key):
                    self.report("wrong_value", ("policy", "rules", str(n), key), f"{key} is empty")
        unread = any(map(policy_is_unread, self.problems))
        if not unread and not self.incomplete and self.lost.isdisjoint(RESTRICTING):
            return policy
        # A rule that cannot be read must not open a door: everything asks until it is mended.
        return CarefulPolicy.of(policy, f"every capability asks until {self._unread()} is mended")

    def _unread(self) -> str:
        """Where the mistake is that makes everything ask."""
        for problem in self.problems:
            lost = problem.key in self.lost or section_meant(problem.key) in self.lost
            if policy_is_unread(problem) or (problem.severity == "error" and lost):
                file = problem.file.rpartition("/")[2]
                return f"line {problem.line} of {file}" if problem.line else file
        return "a configuration file, which `interlock validate` names,"

    def _servers(self) -> dict[str, ServerEntry]:
        servers: dict[str, ServerEntry] = {}
        for name, table in self.merged.sections["mcp_servers"].items():
            path = ("mcp_servers", name)
            checker = self._begin(path)
            settings = self._server(checker, table, path) if checker else None
            if settings is not None:
                servers[name] = ServerEntry(
                    settings=settings, folder=self._folder_of(path), origin=self._origin(path)
                )
        self.entry = ""
        return servers

    def _cli_tools(self) -> dict[str, CliEntry]:
        tools: dict[str, CliEntry] = {}
        for name, table in self.merged.sections["cli_tools"].items():
            path = ("cli_tools", name)
            checker = self._begin(path)
            if checker is None:
                continue
            good = checker.struct(CliToolSettings, table, path)
            self._sizes(checker, good, path)
            self._texts(checker, good, path)
            if checker.errors:
                continue
            settings = msgspec.convert(good, CliToolSettings)
            for below, message in cli_faults(settings):
                code = "wrong_value" if below else "missing_key"
                checker.error(code, (*path, *below), message)
            if not checker.errors:
                tools[name] = CliEntry(
                    settings=settings, folder=self._folder_of(path), origin=self._origin(path)
                )
        self.entry = ""
        return tools

    def _agents(self) -> dict[str, AgentEntry]:
        agents: dict[str, AgentEntry] = {}
        for name, table in self.merged.sections["agents"].items():
            path = ("agents", name)
            if "agents" in self.lost and self._origin(path).layer == "built-in":
                continue  # it would be granted everything, whatever the lost tables said of it
            checker = self._begin(path)
            if checker is None:
                continue
            good = checker.struct(AgentSettings, table, path)
            self._sizes(checker, good, path)
            self._texts(checker, good, path)
            if not checker.errors:
                settings = msgspec.convert(good, AgentSettings)
                if settings.enabled and settings.model not in MODELS:
                    # The text may hold an address with a password, so it is not repeated.
                    message = "this model is not supported yet: every turn of the agent fails"
                    self.report(
                        "not_supported",
                        (*path, "model"),
                        message,
                        'set `model = "direct"`: it takes tool calls as text',
                    )
                agents[name] = AgentEntry(settings=settings, origin=self._origin(path))
        self.entry = ""
        return agents

    def _begin(self, path: Path) -> Checker | None:
        """Start the checks of an entry; None if its very name cannot be used."""
        self.entry = ""
        try:
            self.entry = worker_name(*path)
        except UsageError:
            self.report("wrong_value", path, "the name of an entry must be text and not empty")
            return None
        if len(path[1]) > MAX_NAME or "\0" in path[1]:
            limit = f"the name of an entry has at most {MAX_NAME} characters and no NUL"
            self.report("wrong_value", path, limit)
            return None
        return Checker(self.report, self._room)

    def _server(self, checker: Checker, table: Any, path: Path) -> McpServerSettings | None:
        good = checker.struct(McpServerSettings, table, path)
        good.setdefault("max_result", McpServerSettings().max_result)
        if "call_timeout" in good and "call_timeout_max" not in good:
            usual = McpServerSettings().call_timeout_max
            good["call_timeout_max"] = max(usual, good["call_timeout"])
        self._sizes(checker, good, path)
        self._texts(checker, good, path)
        if checker.errors:
            return None
        settings = msgspec.convert(good, McpServerSettings)
        self._connection(checker, settings, path)
        if not checker.errors and settings.enabled:
            self._filled_in(checker, settings, path)
        elsewhere = bool(settings.url) and settings.type != "stdio"
        if elsewhere and settings.enabled and not checker.errors:
            message = "servers at a url are not supported yet: this one does not run"
            fix = "give it a command that connects to it, or set enabled = false"
            self.report("not_supported", (*path, "url"), message, fix)
        return None if checker.errors else settings

    def _connection(self, checker: Checker, settings: McpServerSettings, path: Path) -> None:
        """Check that the entry says how to reach the server, and only one way."""
        kind = settings.type
        if kind is None and settings.command and settings.url:
            message = "there are both command and url; keep one of them, or say which with type"
            checker.error("wrong_value", path, message)
        elif kind is None and not settings.command and not settings.url:
            checker.error("missing_key", path, "command or url is missing", _REACH)
        elif kind == "stdio" and not settings.command:
            checker.error("missing_key", path, "type stdio needs a command", _REACH)
        elif kind in ("sse", "streamable_http") and not settings.url:
            checker.error("missing_key", path, f"type {kind} needs a url", _REACH)
        remote = kind in ("sse", "streamable_http") or (kind is None and bool(settings.url))
        if remote and settings.url and not settings.url.startswith(("http://", "https://", "${")):
            message = "url must begin with http:// or https://"
            checker.error("wrong_value", (*path, "url"), message)
        if not remote and " " in settings.command and not settings.args:
            message = "command looks like a whole command line; its words belong into args"
            self.report("whole_command", (*path, "command"), message, WHOLE_COMMAND)
        if settings.idle_stop:
            message = "idle_stop is not supported yet: the server runs all the time"
            self.report("not_supported", (*path, "idle_stop"), message, "remove it, or set it to 0")
        if settings.call_timeout > settings.call_timeout_max:
            message = "call_timeout is larger than call_timeout_max"
            checker.error("wrong_value", (*path, "call_timeout"), message)

    def _filled_in(self, checker: Checker, settings: McpServerSettings, path: Path) -> None:
        for below in unfilled(settings):
            name = ".".join(below)
            checker.error(
                "not_configured",
                (*path, *below),
                f"{name} is still a placeholder, so the server is not started",
                f"write the real value of {name}, or enabled = false",
            )

    def _sizes(self, checker: Checker, table: dict[str, Any], path: Path) -> None:
        """Replace sizes in words by bytes."""
        for below in _SIZES:
            inner: Any = table
            for key in below[:-1]:
                inner = inner.get(key, {})
            if isinstance(inner, dict) and below[-1] in inner:
                try:
                    inner[below[-1]] = parse_size(inner[below[-1]])
                except ValueError as error:
                    checker.error("wrong_value", (*path, *below), f"{below[-1]}: {error}")

    def _texts(self, checker: Checker, table: dict[str, Any], path: Path) -> None:
        """Refuse text that no process, header or message can carry."""
        for key, value in table.items():
            for text in texts(value):
                if "\0" in text:
                    message = f"{key} contains a character that cannot be passed on"
                    checker.error("wrong_value", (*path, key), message)
                    break
        own = [
            ("env", name)
            for name in table.get("env", {})
            if name.startswith(OWN_PREFIX) and is_name(name)
        ]
        if str(table.get("api_key_env", "")).startswith(OWN_PREFIX):
            own.append(("api_key_env", table["api_key_env"]))
        for key, name in own:
            place = (*path, key, name) if key == "env" else (*path, key)
            message = f"{name} is not passed on: variables of Interlock itself never are"
            self.report("own_variable", place, message, "remove it, or rename it")
        for name in table.get("env", {}):
            if not name or "=" in name:
                message = "the name of a variable is empty or holds an = sign"
                checker.error("wrong_value", (*path, "env"), message)
        for name, value in table.get("headers", {}).items():
            if not name or not name.isascii() or any(c in name + value for c in "\r\n"):
                told = (name,) if is_name(name) else ()
                which = f"the header {name}" if told else "a header"
                message = f"{which} cannot be sent: it holds a line break or no name"
                checker.error("wrong_value", (*path, "headers", *told), message)

    def _default_agent(self, settings: Settings) -> None:
        name = settings.supervisor.default_agent
        # One that is written, but left out because of a mistake, is told of where that is.
        if name not in settings.agents and name not in self.merged.sections.get("agents", {}):
            message = f"default_agent names {name}, and there is no such agent"
            self.report("unknown_agent", ("supervisor", "default_agent"), message)

    def _beside_its_file(self, path: Path) -> bool:
        entry = self.merged.sections[path[0]][path[1]]
        command = entry.get("command", "")
        relative = "/" in command and not command.startswith(("/", "~", "$"))
        return bool(entry.get("cwd")) or relative

    def _origin(self, path: Path) -> Origin:
        layer, line = self.merged.place(path)
        if layer is None:
            return Origin()
        return Origin(layer=layer.layer, file=layer.file, line=line)

    def _folder_of(self, path: Path) -> str:
        """Return the folder of the file that says where, or else what, the server is.

        The user's own file belongs to no project: what it has runs where `up` was called, unless it
        says where, or its command is a file beside it.
        """
        for key in ("cwd", "command", "url"):
            layer: LayerFile | None = self.merged.places.get((*path, key))
            if layer is not None:
                if layer.layer == "user" and not self._beside_its_file(path):
                    return self.folder
                return layer.file.rpartition("/")[0] or "/"
        return self.folder
