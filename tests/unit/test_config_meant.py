"""Keys that nobody reads: what may have been written to forbid something permits nothing.

Promise: a rule that cannot be read opens no door.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.supervisor.config.model import Loaded
from interlock.supervisor.config.read import load

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
        "[policies]\nblock = ['*']",
        "block = ['mcp:x/*']",
        "approval = 'never'",
        "deny = ['*']",
        "[agent.main]\ndeny = ['*']",
        "[Agents.main]\ngrant = []",
        "[mcp_server.x]\ndisabled_tools = ['a']",
        "[mcpServers.x]\nenabled = false",
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
        "[agents.it]\ncolour = 'red'\ndescripton = 'x'\nfocused = []",
        "[mcp_servers.it]\ncommand = 'x'\ntitle = 'a'\nautoApprove = []\ntimeout = 3\nkind = 'a'",
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
