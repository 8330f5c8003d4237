"""The gate's owner: follows the catalog, whatever the order; names written in full; sessions."""

from __future__ import annotations

import random

import pytest
from tool_lists import CALENDARS, CODE_HOST, NOTEBOOKS

from interlock.bus.names import CapabilityName
from interlock.bus.records import CapabilityReport
from interlock.bus.settings import (
    AgentSettings,
    CliToolSettings,
    McpServerSettings,
    PolicySettings,
    UsageCard,
)
from interlock.supervisor.catalog import written as written_names
from interlock.supervisor.catalog.gating import Gating
from interlock.supervisor.catalog.offer import make_offer
from interlock.supervisor.catalog.rows import Catalog
from interlock.supervisor.catalog.schemas import Schemas
from interlock.supervisor.catalog.written import LONGEST, WrittenNames
from interlock.supervisor.events.sessions import SESSIONS, TURNS, Sessions
from interlock.supervisor.shipped import tables

LISTS = {"mcp:github": CODE_HOST, "mcp:notebooklm": NOTEBOOKS, "mcp:times": CALENDARS}
CARD = McpServerSettings(usage_card={"en": ("diary",), "de": ("Termin",)})


class Parts:
    """A catalog with its gate."""

    def __init__(self) -> None:
        self.catalog = Catalog()
        self.gating = Gating(self.catalog, Schemas(), tables())

    def add(self, name: str, settings: McpServerSettings | CliToolSettings | None = None) -> None:
        entry = settings or McpServerSettings()
        self.catalog.configure(name, entry)
        self.gating.configure(name, entry)

    def report(self, name: str, tools: dict[str, str]) -> None:
        reports = [CapabilityReport(name=tool, digest="", summary=tools[tool]) for tool in tools]
        self.catalog.report(name, reports)
        self.gating.reported(name)
        self.catalog.set_state(name, "READY", "")


def parts(order: list[str] | None = None) -> Parts:
    made = Parts()
    for name in order or list(LISTS):
        made.add(name, CARD if name == "mcp:times" else None)
    for name in reversed(order or list(LISTS)):
        made.report(name, LISTS[name])
    return made


@pytest.mark.parametrize(
    ("text", "calls", "expected"),
    [
        ("use mcp:github/list_commits", False, {"mcp:github"}),
        ("see (mcp:github), please", False, {"mcp:github"}),
        ("mcp:github.", False, {"mcp:github"}),
        ("mcp__notebooklm__quiz_create now", False, {"mcp:notebooklm"}),
        ("xmcp:times/list_events mcp:nobody/x mcp__times", False, set()),
        ("ListCommits {}", True, {"mcp:github"}),
        ("ListCommits {}", False, set()),
        ('list_events {"a": 1} & default:create_branch\n', True, {"mcp:times", "mcp:github"}),
        ("# list_events {}", True, set()),
    ],
)
def test_what_a_text_names(text: str, calls: bool, expected: set[str]) -> None:
    written = WrittenNames(parts().catalog.rows())
    assert written.sources(text, calls=calls).keys() == expected


def test_a_card_counts_in_all_its_languages() -> None:
    gating = parts().gating
    assert gating.passed("my Termin tomorrow") == {"mcp:times"}
    assert gating.passed("write into the diary") == {"mcp:times"}
    assert gating.passed("see mcp:github, the diary") == {"mcp:times", "mcp:github"}


@pytest.mark.parametrize(
    ("card", "text", "passes"),
    [
        (("pull request",), "my pull requests", True),
        (("pull request",), "the weather", False),
        (("pull request",), "use cli:gh", True),
        ({"en": ("pull request",)}, "the weather", False),
        ({"en": ()}, "the weather", True),
        ((), "the weather", True),
    ],
)
def test_a_program_with_a_card_is_offered_when_the_card_matches(
    card: UsageCard, text: str, passes: bool
) -> None:
    made = parts()
    made.add("cli:gh", CliToolSettings(command="gh", usage_card=card))
    made.report("cli:gh", {"gh": "Works with the code host"})
    assert ("cli:gh" in made.gating.passed(text)) == passes
    verdict = made.gating.explain(text)[1]["cli:gh"]
    assert verdict.passed == passes
    assert made.gating.decides("cli:gh") == (card not in ((), {"en": ()}))


def test_a_program_that_loses_its_card_is_offered_again() -> None:
    made = parts()
    made.add("cli:gh", CliToolSettings(command="gh", usage_card=("pull request",)))
    made.report("cli:gh", {"gh": "Works with the code host"})
    assert "cli:gh" not in made.gating.passed("the weather")
    made.add("cli:gh", CliToolSettings(command="gh"))
    assert "cli:gh" in made.gating.passed("the weather")


def test_explaining_decides_the_same() -> None:
    gating = parts().gating
    for text in ("mcp:github and flashcards", "the diary", "nothing of that kind"):
        _, verdicts = gating.explain(text)
        assert {name for name, one in verdicts.items() if one.passed} == gating.passed(text)
        assert set(verdicts) == set(LISTS)
    assert verdicts["mcp:times"].via == ""


def test_the_order_of_sources_does_not_show() -> None:
    chance = random.Random(3)
    agent = AgentSettings(description="keeps the calendar")
    seen = set()
    for _ in range(20):
        made = parts(chance.sample(list(LISTS), len(LISTS)))
        passed = made.gating.passed("mcp:times, a mind map")
        settings = made.gating.focused("main", agent)
        rows = made.catalog.rows()
        offer = make_offer(rows, made.catalog.sources(), settings, PolicySettings(), passed)
        seen.add((offer.rows, offer.withheld, repr(made.gating.explain("issues"))))
    assert len(seen) == 1


def test_what_a_source_served_is_known_while_it_is_down_and_forgotten_with_it() -> None:
    made = parts()
    place = made.gating.changes
    made.catalog.set_state("mcp:notebooklm", "BACKOFF", "")
    made.catalog.expire("mcp:notebooklm")
    made.gating.configure("mcp:notebooklm", McpServerSettings())
    assert made.gating.passed("make flashcards") == {"mcp:notebooklm"}
    made.report("mcp:notebooklm", NOTEBOOKS)
    assert made.gating.changes == place  # nothing new: nothing is read again
    made.report("mcp:notebooklm", {"quiz_create": "Make a quiz"})
    assert made.gating.changed_since("mcp:notebooklm", place)
    assert not made.gating.changed_since("mcp:github", place)
    made.gating.remove("mcp:notebooklm")
    made.gating.reported("mcp:notebooklm")
    assert made.gating.passed("notebooklm") == frozenset()
    made.gating.remove("mcp:notebooklm")


def test_a_focus_is_the_agents_own_or_found_in_its_description() -> None:
    gating = parts().gating
    own = AgentSettings(focus=("mcp:github/*",), description="keeps the calendar")
    assert gating.focused("main", own) is own
    found = gating.focused("planner", AgentSettings(description="Keeps my diary"))
    assert found.focus[0] == "mcp:times/*" and len(found.focus) <= 6
    assert gating.focused("main", AgentSettings()).focus == ()


def test_disabled_tools_say_nothing() -> None:
    made = parts()
    made.add("mcp:notebooklm", McpServerSettings(disabled_tools=("flashcards_create",)))
    assert made.gating.passed("make flashcards") == frozenset()


def test_sessions_remember_the_last_turns() -> None:
    sessions = Sessions()
    sessions.ended("main", "", ["mcp:a"])
    assert sessions.recent("main", "") == ()
    for n in range(TURNS + 2):
        sessions.ended("main", "s", [f"mcp:{n}", f"mcp:{n}"])
    assert sessions.recent("main", "s") == tuple((f"mcp:{n}",) for n in range(TURNS + 1, 1, -1))
    assert sessions.recent("other", "s") == ()
    for n in range(SESSIONS):
        sessions.ended("main", f"t{n}", [])
    assert sessions.recent("main", "s") == ()
    assert sessions.recent("main", "t0") == ((),)


def test_a_text_that_is_no_name_is_not_folded() -> None:
    """Combining marks take quadratic time, and a request may be 64 KiB of them."""
    made = Catalog()
    made.configure("mcp:x", McpServerSettings())
    made.report("mcp:x", [CapabilityReport(name="run_shell", digest="")])
    written = WrittenNames(made.rows())
    for dashes, found in ((100, {"mcp:x"}), (LONGEST, set())):
        assert set(written.sources(f"run{'-' * dashes}shell {{}}", calls=True)) == found


def test_a_source_that_changes_costs_no_folding_of_what_others_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Promise: a server that changes its tools all the time slows no turn."""
    made = parts()
    folded: list[str] = []
    plain = written_names.folded_leaves

    def counting(name: CapabilityName) -> tuple[str, ...]:
        folded.append(str(name))
        return plain(name)

    monkeypatch.setattr(written_names, "folded_leaves", counting)
    for n in range(3):
        made.report("mcp:notebooklm", {f"tool_{n}": "Makes a quiz"})
        told = len(folded)
        assert made.gating.passed(f"Tool{n} {{}}", calls=True) == {"mcp:notebooklm"}
        assert len(folded) == told  # nothing of it within a request
    assert folded == [f"mcp:notebooklm/tool_{n}" for n in range(3)]
    made.gating.remove("mcp:notebooklm")
    assert made.gating.passed("Tool2 {}", calls=True) == frozenset()


def test_a_name_that_two_sources_have_stays_with_the_one_that_keeps_it() -> None:
    made = parts()
    for source in ("mcp:github", "mcp:times"):
        made.report(source, {"look_up": "Looks"})
    assert made.gating.passed("LookUp {}", calls=True) == {"mcp:github", "mcp:times"}
    made.report("mcp:times", {"other": "Does"})
    assert made.gating.passed("LookUp {}", calls=True) == {"mcp:github"}
    written = WrittenNames(made.catalog.rows())
    assert written.sources("mcp__times__other").keys() == {"mcp:times"}
    written.replace("mcp:times", ())
    assert written.sources("mcp__times__other mcp:times/other mcp:github").keys() == {"mcp:github"}
