"""Names: one written form each, one wire name each, and spellings that resolve."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.bus.errors import UsageError
from interlock.bus.names import (
    CapabilityName,
    WireNames,
    WorkerName,
    matches,
    matches_folded,
    resolve_spelling,
    wire_name,
)

WIRE = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")
legal_text = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=90),
    # Dense in what could collide: separators, case, dots and underscores.
    st.text(st.sampled_from("aAb_-./:% é*"), min_size=1, max_size=8),
    st.text(st.sampled_from("ab_"), min_size=1, max_size=90),
)
names = st.builds(
    CapabilityName,
    st.sampled_from(["mcp", "cli", "core", "lsp"]),
    legal_text,
    st.one_of(st.just(""), legal_text),
)


@given(names)
def test_the_written_form_is_read_back(name: CapabilityName) -> None:
    assert CapabilityName.parse(str(name)) == name
    assert WorkerName.parse(str(name.worker)) == name.worker


@given(names)
def test_the_written_form_has_no_loose_separator(name: CapabilityName) -> None:
    written = str(name)
    assert written.count(":") == 1
    assert written.count("/") == (1 if name.name else 0)
    assert not re.search(r"[\s*?\[\]#&\"']", written)


@given(st.sets(names, max_size=30))
def test_wire_names_are_legal_distinct_stable_and_reversible(found: set[CapabilityName]) -> None:
    wires = {wire_name(name): name for name in found}
    assert len(wires) == len(found)
    assert all(WIRE.match(wire) for wire in wires)
    table = WireNames(found)
    assert all(table.find(wire) == name for wire, name in wires.items())
    # Another order, other company: the same names.
    assert all(wire_name(CapabilityName.parse(str(name))) == wire for wire, name in wires.items())


@given(names)
def test_a_hashed_wire_name_is_never_a_plain_one(name: CapabilityName) -> None:
    wire = wire_name(name)
    parts = wire.split("__")
    if "___" in wire:
        assert re.search(r"___[0-9a-f]{16}$", wire)
    else:
        assert parts == [name.kind, name.source] + ([name.name] if name.name else [])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("mcp", "a_", "b"), ("mcp", "a", "_b")),
        (("mcp", "a__b", "c"), ("mcp", "a", "b__c")),
        (("mcp", "a", "b__c"), ("mcp", "a__b", "c")),
        (("mcp", "a", ""), ("mcp", "a", "_")),
        (("mcp", "A", "b"), ("mcp", "a", "b")),
        (("mcp", "a.b", "c"), ("mcp", "a_b", "c")),
        (("mcp", "a", "b/c"), ("mcp", "a/b", "c")),
        (("mcp", "a", "x" * 89 + "1"), ("mcp", "a", "x" * 89 + "2")),
        (("mcp", "é", "b"), ("mcp", "e\u0301", "b")),
    ],
)
def test_lookalikes_stay_apart(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    first, second = CapabilityName(*one), CapabilityName(*other)
    assert str(first) != str(second)
    assert wire_name(first) != wire_name(second)


def test_a_hashed_form_cannot_be_forged_by_a_plain_name() -> None:
    target = CapabilityName("mcp", "a.b", "tool")
    imitation = CapabilityName("mcp", "a_b", wire_name(target).removeprefix("mcp__a_b__"))
    assert wire_name(imitation) != wire_name(target)


def test_ordinary_names_are_readable() -> None:
    assert str(CapabilityName("mcp", "github", "create_pull_request")) == (
        "mcp:github/create_pull_request"
    )
    assert wire_name(CapabilityName("cli", "gh")) == "cli__gh"
    assert wire_name(CapabilityName("mcp", "my-files", "read.all")).startswith(
        "mcp__my-files__read_all___"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "git",
        "mcp:",
        "mcp:/x",
        "mcp:git/",
        "mcp:git/a/b",
        "mcp:git:x",
        "MCP:git/x",
        "mcp:a%zz",
        "mcp:%ff",
        "mcp:a%",
        ":a/b",
        "mcp:\ud800",
    ],
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        CapabilityName.parse(text)


def test_a_worker_name_has_no_tool() -> None:
    with pytest.raises(UsageError):
        WorkerName.parse("mcp:git/git_log")


def test_wire_names_forget_and_refuse_a_collision(monkeypatch: pytest.MonkeyPatch) -> None:
    name = CapabilityName("mcp", "a", "b")
    table = WireNames([name])
    assert list(table) == [name]
    monkeypatch.setattr("interlock.bus.names.wire_name", lambda _: "mcp__a__b")
    with pytest.raises(UsageError):
        table.add(CapabilityName("mcp", "a", "c"))
    table.discard(name)
    assert len(table) == 0


SHELL = CapabilityName("mcp", "x", "run_shell")
OTHER = CapabilityName("mcp", "y", "read_file")
FIND = CapabilityName("core", "find_tools")
GH = CapabilityName("cli", "gh")
OFFER = (SHELL, OTHER, FIND, GH)


@pytest.mark.parametrize(
    "text",
    [
        "run-shell",
        "run_shell",
        "RunShell",
        "RUN SHELL",
        "default:run_shell",
        "default_api:run_shell",
        "functions.run_shell",
        "mcp:x/run-shell",
        "mcp:X/RunShell",
        "x/run_shell",
        "x:run_shell",
        "x.run_shell",
        "mcp__x__run_shell",
        "mcp__x__runShell",
        "x__run_shell",
        "mcp_x_run_shell",
        "mcp-x-run-shell",
        "mcp:x/run_shell",
    ],
)
def test_spellings_that_resolve(text: str) -> None:
    assert resolve_spelling(text, OFFER) == SHELL


def test_names_without_a_tool_resolve() -> None:
    assert resolve_spelling("find-tools", OFFER) == FIND
    assert resolve_spelling("core:FindTools", OFFER) == FIND
    assert resolve_spelling("cli__gh", OFFER) == GH


def test_an_explicit_source_never_resolves_to_another() -> None:
    for text in ("mcp:z/run_shell", "z/run_shell", "mcp__z__run_shell", "cli:run_shell"):
        assert resolve_spelling(text, OFFER) == (SHELL,)


def test_two_that_match_are_candidates() -> None:
    twin = CapabilityName("mcp", "z", "run_shell")
    assert resolve_spelling("RunShell", [*OFFER, twin]) == (SHELL, twin)
    assert resolve_spelling("z/RunShell", [*OFFER, twin]) == twin
    assert resolve_spelling("mcp:x/run_shell", [*OFFER, twin]) == SHELL


def test_exact_wins_over_folded() -> None:
    upper = CapabilityName("mcp", "x", "Run_Shell")
    assert resolve_spelling("mcp:x/Run_Shell", [SHELL, upper]) == upper
    assert resolve_spelling("mcp:x/runshell", [SHELL, upper]) == (SHELL, upper)


def test_near_misses_are_offered_and_nonsense_is_not() -> None:
    assert resolve_spelling("mcp:x/run_shel", OFFER) == (SHELL,)
    assert resolve_spelling("zzzzzzzz", OFFER) == ()
    assert resolve_spelling("", OFFER) == ()


def test_a_source_called_default_is_a_source() -> None:
    own = CapabilityName("mcp", "default", "run_shell")
    assert resolve_spelling("default:run_shell", [*OFFER, own]) == own


@given(names, st.sets(names, max_size=8))
def test_a_known_name_always_resolves_to_itself(
    name: CapabilityName, others: set[CapabilityName]
) -> None:
    known = [*others, name]
    assert resolve_spelling(str(name), known) == name
    assert resolve_spelling(wire_name(name), known) == name


@given(st.text(max_size=60), st.sets(names, max_size=8))
def test_any_text_gets_a_name_or_candidates(text: str, known: set[CapabilityName]) -> None:
    found = resolve_spelling(text, known)
    if isinstance(found, CapabilityName):
        assert found in known
    else:
        assert set(found) <= known


@pytest.mark.parametrize(
    ("pattern", "exact", "folded"),
    [
        ("*", True, True),
        ("mcp:x/*", True, True),
        ("mcp:x/run_shell", True, True),
        ("mcp__x__run_shell", True, True),
        ("mcp:x/run-shell", False, True),
        ("mcp:X/RunShell", False, True),
        ("mcp:*/run*", True, True),
        ("mcp:*/Run-*", False, True),
        ("mcp:x", False, True),
        ("run_shell", False, True),
        ("mcp:y/*", False, False),
        ("cli:*", False, False),
        ("mcp:x/read*", False, False),
    ],
)
def test_patterns(pattern: str, exact: bool, folded: bool) -> None:
    assert matches(pattern, SHELL) is exact
    assert matches_folded(pattern, SHELL) is folded


FORMS = ("spawn_worker", "SpawnWorker", "spawn-worker", "x/spawn-worker", "default:spawn_worker")
FORMS += ("team.spawn_worker", "mcp__x__spawn_worker", "\uff33pawnWorker", "spawn_worker/")


@pytest.mark.parametrize(
    "rule", ["spawn-worker", "spawn_worker", "SpawnWorker", "default:spawn_worker"]
)
@pytest.mark.parametrize("tool", FORMS)
def test_a_bare_rule_forbids_every_form_of_a_name(rule: str, tool: str) -> None:
    assert matches_folded(rule, CapabilityName("mcp", "y", tool))
    assert matches_folded(f"mcp:*/{rule.rpartition(':')[2]}", CapabilityName("mcp", "y", tool))
    assert not matches_folded(rule, CapabilityName("mcp", "y", "spawn_workers_list"))


@pytest.mark.parametrize(
    ("rule", "forbids"),
    [
        ("git.git_log", True),
        ("mcp__git__git_log", True),
        ("mcp.git.git_log", True),
        ("git/GitLog", True),
        ("functions.git_log", True),
        ("tools/git_log", True),
        ("hub.git_log", False),
        ("hub/git_log", False),
        ("mcp:hub/git_log", False),
        ("git*", True),
        ("log*", False),
        ("gi*", True),
        ("*_log", True),
        ("git.*", True),
    ],
)
def test_rules_that_name_a_source(rule: str, forbids: bool) -> None:
    assert matches_folded(rule, CapabilityName("mcp", "git", "git_log")) is forbids


def test_a_wildcard_for_tools_is_not_about_their_source() -> None:
    assert not matches_folded("read*", CapabilityName("mcp", "reader", "write"))
    assert matches_folded("read*", CapabilityName("mcp", "writer", "ReadFile"))


@given(names)
def test_a_name_matches_its_own_rule_however_it_is_written(name: CapabilityName) -> None:
    assert matches_folded(str(name), name)
    assert matches_folded("*", name)
