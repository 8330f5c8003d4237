"""Keys that nobody reads: what may have been written to forbid something permits nothing.

Promise: a rule that cannot be read opens no door.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.bus.records import CapabilityReport
from interlock.bus.settings import (
    AgentSettings,
    CliToolSettings,
    McpServerSettings,
    SupervisorSettings,
)
from interlock.supervisor.catalog.rows import tier_of
from interlock.supervisor.config.meant import may_forbid
from interlock.supervisor.config.model import Loaded
from interlock.supervisor.config.read import load
from interlock.supervisor.policy.decision import Ruling, standing

GOOD = """
[policy]
block = ["cli:rm"]
allow = ["*"]
[agents.main]
grant = ["mcp:a/*"]
"""


class Place:
    """A file of `--config` that is read again and again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, text: str, before: Loaded | None = None) -> Loaded:
        path = self._folder / "c.toml"
        path.write_text(text)
        return load(self._folder, None, path, {"HOME": str(self._folder)}, before)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def errors(loaded: Loaded) -> list[tuple[str, str]]:
    return [(one.code, one.entry) for one in loaded.problems if one.severity == "error"]


@pytest.mark.parametrize(
    "text",
    [
        "[policy]\nblok = ['mcp:x/*']",
        "[policy]\ndeny = ['*']",
        "[policy]\nmode = 'never'",
        "[Policy]\nblock = ['*']",
        "[polcy]\nx = 1",
        "[agnet.main]\ngrant = []",
        "[mcp_sever.x]\nenabled = false",
        "[policies]\nblock = ['*']",
        "block = ['mcp:x/*']",
        "approval = 'never'",
        "deny = ['*']",
        "[agent.main]\ndeny = ['*']",
        "[Agents.main]\ngrant = []",
        "[mcp_server.x]\ndisabled_tools = ['a']",
        "[mcpServers.x]\nenabled = false",
        "ask = ['mcp:x/*']",
        "[supervisor]\napproval = 'always'",
        "[supervisor]\nblock = ['*']",
    ],
)
def test_a_misspelt_rule_opens_no_door(place: Place, text: str) -> None:
    first = place.read(text)
    assert errors(first) == [("unread_key", "")]
    assert first.settings.policy.ask == ("*",)
    assert all(one.line for one in first.problems if one.severity == "error")
    assert "main" not in first.settings.agents or "gent" not in text
    running = place.read(text, place.read(GOOD)).settings
    assert (running.policy.ask, running.policy.allow) == (("*",), ())
    if "olic" in text:
        assert running.policy.block == ("cli:rm",)
    if "gent" in text:
        assert running.agents["main"].settings.grant == ("mcp:a/*",)


@pytest.mark.parametrize(
    ("section", "key"),
    [
        *(("agents", key) for key in ("denied = []", "grants = []", "allow = ['mcp:a/*']")),
        *(("agents", key) for key in ("enable = false", "block = []")),
        *(("mcp_servers", key) for key in ("disable_tools = ['a']", "disabledTools = ['a']")),
        *(("mcp_servers", key) for key in ("enabled_tools = ['a']", "teir = 'ask'", "tool = {}")),
        *(("mcp_servers", key) for key in ("disabled = true", "tools.a.teir = 'block'")),
        *(("mcp_servers", key) for key in ("Enabled = false", "blocked = ['a']")),
        *(("cli_tools", key) for key in ("subcommand = ['a']", "Tier = 'block'")),
        *(
            ("cli_tools", key)
            for key in ("commands = ['log']", "approval = 'always'", "ask = true")
        ),
        ("cli_tools", "arguments.a.enum = ['x']"),
        ("cli_tools", "arguments.a.choice = ['x']"),
        *(("mcp_servers", key) for key in ("ask = ['a']", "approval = 'always'", "rules = []")),
        *(("mcp_servers", key) for key in ("readOnly = true", "read_only = true", "allow = ['a']")),
        *(("mcp_servers", key) for key in ("require_approval = 'always'", "confirm = true")),
        ("mcp_servers", "default_tools_approval_mode = 'prompt'"),
        *(("mcp_servers", key) for key in ("available_tools = ['a']", "includeTools = ['a']")),
        *(("mcp_servers", key) for key in ("allowedTools = ['a']", "subcommands = ['a']")),
        *(
            ("mcp_servers", key)
            for key in ("tools.a.ask = true", "active = false", "prompt = true")
        ),
        *(("agents", key) for key in ("ask = ['mcp:a/*']", "approval = 'always'", "rules = []")),
        *(("agents", key) for key in ("tools = ['mcp:a/*']", "tier = 'ask'", "readOnly = true")),
    ],
)
def test_a_misspelt_key_that_may_forbid_lets_its_entry_not_run(
    place: Place, section: str, key: str
) -> None:
    said = "" if section == "agents" else "command = 'x'\n"
    found = place.read(f"[{section}.it]\n{said}{key}\n[{section}.other]\n{said}")
    entries = set(getattr(found.settings, section))
    assert "it" not in entries and "other" in entries
    ((code, entry),) = errors(found)
    assert (code, entry.partition(":")[2]) == ("unread_key", "it")
    assert found.settings.policy.ask == ()


@pytest.mark.parametrize(
    "text",
    [
        "[policy]\nalow = ['*']",
        "[agents.it]\ncolour = 'red'\ndescripton = 'x'\nfocused = []\nprompt = 'be kind'",
        "[mcp_servers.it]\ncommand = 'x'\ntitle = 'a'\nautoApprove = []\ntimeout = 3\nkind = 'a'",
        "[mcp_servers.it]\ncommand = 'x'\nalwaysAllow = []\ntrust = true",
        "[cli_tools.it]\ncommand = 'x'\ntime_out = 3\ncomment = 'x'\ntype = 'y'",
        "[tool.ruff]\nx = 1\n[project]\nname = 'x'",
    ],
)
def test_other_unknown_keys_are_warnings_only(place: Place, text: str) -> None:
    found = place.read(text)
    assert {one.code for one in found.problems} == {"unknown_key"} and not errors(found)
    assert found.settings.policy.ask == ()
    assert "it]" not in text or any(name.endswith(":it") for name in found.settings.workers())


def test_no_row_says_that_an_agent_is_missing_which_goes_on_as_before(place: Place) -> None:
    before = place.read("[agents.main]\nmodel = 'direct'\n")
    found = place.read("[agents.main]\nmodel = 'direct'\ngrant = 'x'\n", before)
    assert "main" in found.settings.agents
    assert [one.code for one in found.problems] == ["wrong_type"]
    gone = place.read("[supervisor]\ndefault_agent = 'other'\n", before)
    assert [one.code for one in gone.problems] == ["unknown_agent"]


def test_no_row_says_that_an_agent_is_missing_whose_entry_has_a_mistake(place: Place) -> None:
    found = place.read("[agents.main]\nmodel = 'direct'\nmax_steps = 0\n")
    assert "main" not in found.settings.agents
    (problem,) = found.problems
    assert problem.severity == "error"
    off = place.read("[supervisor]\ndefault_agent = 'off'\n[agents.off]\nenabled = false\n")
    assert [one.code for one in off.problems if one.code == "unknown_agent"] == []


ALLOW_LIST = 'there is no list of allowed tools: write tier = "block" here'


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("[mcp_servers.t]\nenabled_tools = ['a']", ALLOW_LIST),
        ("[mcp_servers.t]\nallowedTools = ['a']", ALLOW_LIST),
        ("[mcp_servers.t]\nallowed_tools = ['a']", ALLOW_LIST),
        ("[mcp_servers.t]\navailable_tools = ['a']", ALLOW_LIST),
        ("[mcp_servers.t]\nincludeTools = ['a']", ALLOW_LIST),
        ("[mcp_servers.t]\ntools = ['a']", ALLOW_LIST),
        ("[mcp_servers.t]\ndisabled = true", "write enabled = false"),
        ("[mcp_servers.t]\nexcludeTools = ['a']", 'write disabled_tools = ["TOOL"]'),
        ("[mcp_servers.t]\nask = ['a']", 'write ask = ["mcp:t/TOOL"] below [policy]; or here tier'),
        ("[mcp_servers.t]\napproval = 'always'", 'write ask = ["mcp:t/TOOL"] below [policy]; or'),
        ("[mcp_servers.t]\nallowed_paths = ['/a']", "write a table [[policy.rules]] with capabil"),
        ("[mcp_servers.t]\nallow_network = false", "write it as it is meant, or remove it"),
        ("[agents.a]\ndenied_hosts = ['a']", "write a table [[policy.rules]] with capability = "),
        ("[mcp_servers.t]\nrules = []", 'write a table [[policy.rules]] with capability = "mcp:t/'),
        ("[mcp_servers.t.tools.x]\napproval_mode = 'prompt'", 'write tier = "ask"'),
        ("[cli_tools.g]\ncommands = ['log']", "write the only commands that may be run as subcomm"),
        ("[cli_tools.g]\nask = true", 'write tier = "ask"'),
        ("[agents.a]\ntools = ['mcp:t/*']", "write all that it may use as grant = ["),
        ("[agents.a]\nask = ['mcp:t/*']", 'write ask = ["mcp:SERVER/TOOL"] below [policy]'),
        ("[policy]\ndeny = ['*']", 'write block = ["mcp:SERVER/TOOL"]'),
        ("ask = ['a']", "write ask below [policy]"),
        ("rules = []", "write rules below [policy]"),
        ("[supervisor]\napproval = 'always'", "write approval below [policy]"),
    ],
)
def test_the_advice_for_a_restriction_that_nobody_reads_says_what_does_it(
    place: Place, text: str, advice: str
) -> None:
    (found,) = [one for one in place.read(text).problems if one.severity == "error"]
    assert found.fix.startswith(advice)
    assert "did you mean" not in found.message


def test_the_advice_for_a_list_of_allowed_tools_is_right(place: Place) -> None:
    text = "[mcp_servers.t]\ncommand = 'x'\ntier = 'block'\ntools.a.tier = 'monitor'"
    found = place.read(text)
    assert not found.problems
    settings = found.settings.mcp_servers["t"].settings
    tiers = [tier_of(CapabilityReport(name=name, digest=""), settings) for name in ("a", "b")]
    assert tiers == ["monitor", "block"]


@pytest.mark.parametrize(
    ("text", "line"),
    [("[policy]\nblok = ['a']", 2), ("\n[Policy]\nblock = ['a']", 2), ("[policy]\nask = 3", 2)],
)
def test_what_asks_because_of_a_mistake_says_which(place: Place, text: str, line: int) -> None:
    policy = place.read(text).settings.policy
    because = f"every capability asks until line {line} of c.toml is mended"
    assert standing("core:time", "safe", policy) == Ruling(tier="ask", reason=because)
    running = place.read(text, place.read(GOOD)).settings.policy
    assert standing("core:time", "safe", running).reason == because
    mended = place.read(GOOD, place.read(text)).settings.policy
    assert standing("core:time", "safe", mended).tier == "safe"


def test_what_asks_because_a_section_is_no_table_says_so(place: Place) -> None:
    policy = place.read("policy = 3\n").settings.policy
    because = "every capability asks until line 1 of c.toml is mended"
    assert standing("core:time", "safe", policy).reason == because


ORDINARY = (
    "name title label icon version vendor author homepage repository license description comment "
    "notes tags metadata role roles task tasks goal lock locked mask hidden filter filterable "
    "include includes includeEnv include_path include_dirs env_file envFile block_size blocking "
    "nonblocking alwaysAllow autoApprove enable_logging disable_telemetry transport protocol kind "
    "retries startup_timeout_sec tool_timeout_sec approval_timeout timeout_ms bearer_token_env_var "
    "oauth scopes headersHelper dev gallery registry package runtime prompts resources roots "
    "sampling logging log_level debug verbose priority lazy autoStart cache restart restart_policy "
    "retry_policy watch extensions instructions displayName available availability "
    "shell working_dir platform temperature top_p max_tokens service_tier system system_prompt "
    "initial_prompt provider api_key memory skills style context color avatar language background "
    "hooks theme usage help examples stdin pty interactive confirm_text model_reasoning_effort "
    "trust desk den tie dent gasket"
).split()
"""Keys that other programs have in their entries, and people in theirs."""
TABLES = {
    "agents": AgentSettings,
    "mcp_servers": McpServerSettings,
    "cli_tools": CliToolSettings,
    "supervisor": SupervisorSettings,
}


@pytest.mark.parametrize("section", TABLES)
@pytest.mark.parametrize("key", [*ORDINARY, "timeout", "type"])
def test_ordinary_keys_of_any_program_forbid_nothing(section: str, key: str) -> None:
    known = key in TABLES[section].__struct_fields__
    assert known or not may_forbid(TABLES[section], key, "x")


@pytest.mark.parametrize("key", [*ORDINARY, "disabled", "enabled", "prompt", "tools", "timeout"])
def test_ordinary_keys_at_the_top_make_nothing_ask(place: Place, key: str) -> None:
    found = place.read(f"{key} = ['x']\n[agents.a]\n")
    assert [one.code for one in found.problems] == ["unknown_key"]
    assert found.settings.policy.ask == ()


@pytest.mark.parametrize("key", ["lock", "mask", "task", "role", "desk", "debug", "disabled"])
def test_ordinary_keys_of_the_supervisor_make_nothing_ask(place: Place, key: str) -> None:
    found = place.read(f"[supervisor]\n{key} = true\n")
    assert [one.code for one in found.problems] == ["unknown_key"]
    assert found.settings.policy.ask == ()


@pytest.mark.parametrize("section", ["agents", "mcp_servers", "cli_tools"])
@pytest.mark.parametrize(
    "said", ["disabled = X", "readOnly = X", "isActive = Y", "confirm = X", "allow_write = Y"]
)
def test_a_switch_counts_where_it_takes_something_away(
    place: Place, section: str, said: str
) -> None:
    command = "" if section == "agents" else "command = 'x'\n"
    for takes, value in ((False, ("false", "true")), (True, ("true", "false"))):
        line = said.replace("X", value[0]).replace("Y", value[1])
        found = place.read(f"[{section}.it]\n{command}{line}\n")
        assert ("it" not in getattr(found.settings, section)) is takes
        assert [one.code for one in found.problems] == ["unread_key" if takes else "unknown_key"]


def test_what_a_policy_tells_of_itself_makes_nothing_ask(place: Place) -> None:
    found = place.read("[policy]\ndescription = 'for the team'\nversion = 1\n")
    assert {one.code for one in found.problems} == {"unknown_key"}
    assert found.settings.policy.ask == ()


@pytest.mark.parametrize(
    "key",
    [
        *("aks", "dney", "teir", "asks", "alow", "blokc", "blocks", "garnt", "aproval", "rule"),
        *(
            "deny_list",
            "blocklist",
            "blocked_commands",
            "excludeTools",
            "hide_tools",
            "tool_filter",
        ),
        *("allowedtools", "allowed_directories", "permissions", "permissionMode", "only"),
        *("denyRead", "allow_network", "disable_shell", "ask_before_write", "confirm_destructive"),
        *("sandbox_mode", "requires_confirmation", "always_ask", "disabledtool", "enalbed"),
        *(
            "read-only",
            "tools_only",
            "grantedTools",
            "policy",
            "availableTools",
            "disabledCommands",
        ),
    ],
)
@pytest.mark.parametrize("section", ["agents", "mcp_servers", "cli_tools"])
def test_words_and_slips_that_restrict_are_seen(section: str, key: str) -> None:
    assert may_forbid(TABLES[section], key, ["x"])


@pytest.mark.parametrize("key", ["permissions", "blocked_tools", "allowedTools", "denyServers"])
def test_a_restriction_of_another_program_at_the_top_makes_everything_ask(
    place: Place, key: str
) -> None:
    found = place.read(f"{key} = ['x']\n[agents.a]\n")
    assert errors(found) == [("unread_key", "")]
    assert found.settings.policy.ask == ("*",)
