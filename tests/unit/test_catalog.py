from __future__ import annotations

import hashlib
import json
import random

import msgspec
import pytest

from interlock.bus.errors import MalformedError
from interlock.bus.names import local_name
from interlock.bus.records import CapabilityReport
from interlock.bus.settings import (
    AgentSettings,
    CliToolSettings,
    CoreSettings,
    McpServerSettings,
    PolicySettings,
    ToolSettings,
)
from interlock.supervisor.catalog.offer import PERSON, Offer, forbidden, make_offer
from interlock.supervisor.catalog.resolve import Refusal, resolve
from interlock.supervisor.catalog.rows import MAX_TOOLS, Catalog, Delta, summary, tier_of
from interlock.supervisor.catalog.schemas import Schemas
from interlock.workers.mcp.tools import read_tools


def report(name: str, **fields: object) -> CapabilityReport:
    return msgspec.convert({"name": name, "digest": "d" * 64, **fields}, CapabilityReport)


def catalog(**servers: list[str]) -> Catalog:
    made = Catalog()
    for server, tools in servers.items():
        made.configure(f"mcp:{server}", McpServerSettings())
        made.report(f"mcp:{server}", [report(tool) for tool in tools])
        made.set_state(f"mcp:{server}", "READY", "")
    return made


def offer(made: Catalog, agent: AgentSettings | None = None, **policy: tuple[str, ...]) -> Offer:
    rules = msgspec.convert(policy, PolicySettings)
    return make_offer(made.rows(), made.sources(), agent or AgentSettings(), rules)


def test_the_order_does_not_depend_on_who_came_first() -> None:
    servers = {"git": ["log", "add"], "a": ["z", "b"], "time": ["now"]}
    documents = set()
    for seed in range(5):
        names = list(servers)
        random.Random(seed).shuffle(names)
        made = catalog(**{name: sorted(servers[name], key=lambda _: seed) for name in names})
        documents.add(msgspec.json.encode(made.rows()))
    assert len(documents) == 1
    assert [row.name for row in made.rows()] == [
        "mcp:a/b",
        "mcp:a/z",
        "mcp:git/add",
        "mcp:git/log",
        "mcp:time/now",
    ]


def test_a_row_has_its_names_and_its_times() -> None:
    made = Catalog()
    settings = McpServerSettings(
        call_timeout=5, call_timeout_max=50, tools={"slow": ToolSettings(timeout=100)}
    )
    made.configure("mcp:git", settings)
    made.report("mcp:git", [report("a.b", summary="\n Does it.\nMore"), report("slow")])
    made.set_state("mcp:git", "BACKOFF", "exit code 1")
    plain, slow = made.rows()
    assert (plain.name, plain.local, plain.source) == ("mcp:git/a.b", "a.b", "mcp:git")
    assert plain.wire.startswith("mcp__git__a_b__")
    assert (plain.summary, plain.connected, plain.reason) == (
        "Does it.",
        False,
        "restarting, exit code 1",
    )
    assert (plain.timeout, plain.timeout_max) == (5, 50)
    assert (slow.timeout, slow.timeout_max) == (100, 100)


@pytest.mark.parametrize(
    ("annotations", "settings", "tier"),
    [
        ({}, {}, "monitor"),
        ({}, {"tier": "safe"}, "safe"),
        ({"destructive": True}, {"tier": "safe"}, "ask"),
        ({"destructive": True}, {"tier": "block"}, "block"),
        ({"destructive": True, "read_only": True}, {}, "monitor"),
        ({"destructive": False}, {"tier": "ask"}, "ask"),
        ({"open_world": True}, {"tier": "safe"}, "monitor"),
        ({"destructive": True}, {"tools": {"t": {"tier": "safe"}}}, "ask"),
        ({}, {"tier": "ask", "tools": {"t": {"tier": "safe"}}}, "safe"),
        ({"open_world": True}, {"tools": {"t": {"tier": "safe"}}}, "monitor"),
    ],
)
def test_tiers(annotations: dict[str, bool], settings: dict[str, object], tier: str) -> None:
    entry = msgspec.convert(settings, McpServerSettings)
    assert tier_of(report("t", **annotations), entry) == tier


def test_differences_tell_what_came_went_and_changed() -> None:
    made = Catalog()
    settings = McpServerSettings(disabled_tools=("b",))
    assert made.configure("mcp:s", settings) == Delta()
    assert made.report("mcp:s", [report("a"), report("b"), report("c")]) == Delta()
    assert made.set_state("mcp:s", "READY", "") == Delta(added=("mcp:s/a", "mcp:s/c"))
    assert made.set_state("mcp:s", "READY", "") == Delta()
    assert made.report("mcp:s", [report("c"), report("d")]) == Delta(
        added=("mcp:s/d",), removed=("mcp:s/a",)
    )
    both = ("mcp:s/c", "mcp:s/d")
    assert made.set_state("mcp:s", "DEGRADED", "circuit open") == Delta(changed=both)
    assert made.configure("mcp:s", McpServerSettings()) == Delta()
    assert made.set_state("mcp:s", "READY", "") == Delta(changed=both)
    blocked = McpServerSettings(tools={"c": ToolSettings(tier="block")})
    assert made.configure("mcp:s", blocked) == Delta(removed=("mcp:s/c",))
    assert made.configure("mcp:s", McpServerSettings()) == Delta(added=("mcp:s/c",))
    assert made.remove("mcp:s") == Delta(removed=both)
    assert not made.remove("mcp:s")
    assert made.rows() == ()


def test_rows_of_a_source_that_stays_down_go_in_the_end() -> None:
    made = catalog(git=["log", "add"])
    both = ("mcp:git/add", "mcp:git/log")
    assert not made.stale("mcp:git")
    assert not made.expire("mcp:git")
    assert made.set_state("mcp:git", "BACKOFF", "exit code 1") == Delta(changed=both)
    assert made.stale("mcp:git")
    assert {(row.connected, row.reason) for row in made.rows()} == {
        (False, "restarting, exit code 1")
    }
    assert offer(made).rows == ()
    made.set_state("mcp:git", "INITIALIZING", "")
    assert made.expire("mcp:git") == Delta(removed=both)
    assert made.rows() == () and not made.stale("mcp:git")
    made.report("mcp:git", [report("log")])
    assert made.set_state("mcp:git", "READY", "") == Delta(added=("mcp:git/log",))


def test_what_a_source_reports_when_it_comes_back_is_not_stale() -> None:
    made = catalog(git=["log", "add"])
    made.set_state("mcp:git", "BACKOFF", "")
    made.set_state("mcp:git", "INITIALIZING", "")
    assert made.report("mcp:git", [report("log")]) == Delta(removed=("mcp:git/add",))
    assert not made.stale("mcp:git") and not made.expire("mcp:git")
    made.set_state("mcp:git", "BACKOFF", "again")
    assert made.stale("mcp:git")


def quiet() -> Catalog:
    return catalog(files=["read", local_name("resource", "file:///a b"), local_name("prompt", "p")])


def test_resources_and_prompts_are_rows_of_their_own_kind() -> None:
    tool, prompt, resource = quiet().rows()
    assert (prompt.name, prompt.kind, prompt.source) == ("prompt:files/p", "prompt", "mcp:files")
    assert resource.name == "resource:files/file%3A%2F%2F%2Fa%20b"
    assert resource.kind == "resource" and len(resource.wire) <= 64
    assert tool.kind == "mcp"


@pytest.mark.parametrize(
    ("agent", "kinds"),
    [
        (AgentSettings(), ["mcp"]),
        (AgentSettings(grant=("*", "prompt:*")), ["mcp", "prompt"]),
        (AgentSettings(focus=("resource:files/*",)), ["resource", "mcp"]),
        (AgentSettings(grant=("*", "resource:*"), deny=("mcp:files",)), []),
        (
            AgentSettings(grant=("*", "resource:*", "prompt:*"), deny=("mcp:*/p",)),
            ["mcp", "resource"],
        ),
    ],
)
def test_resources_and_prompts_are_offered_where_they_are_named(
    agent: AgentSettings, kinds: list[str]
) -> None:
    assert [row.kind for row in offer(quiet(), agent).rows] == kinds


def test_a_name_of_a_source_that_is_not_there_yet_is_unavailable() -> None:
    made = Catalog()
    made.configure("mcp:git", McpServerSettings())
    made.configure("cli:gh", CliToolSettings(command="gh"))
    made.configure("core:basics", CoreSettings())
    for name in ("mcp:git/log", "resource:git/x", "prompt__git__x", "cli:gh", "core:time"):
        refused = resolve(name, made.rows(), made.sources(), PolicySettings(), PERSON)
        assert isinstance(refused, Refusal) and refused.code == "unavailable", name


def test_own_tools_and_programs_have_short_names() -> None:
    made = Catalog()
    made.configure("cli:gh", CliToolSettings(command="gh", tier="ask", timeout=7))
    made.report("cli:gh", [report("gh")])
    made.configure("core:basics", CoreSettings())
    made.report("core:basics", [report("notes_write"), report("time")])
    gh, write, clock = made.rows()
    assert (gh.name, gh.wire, gh.tier, gh.timeout_max) == ("cli:gh", "cli__gh", "ask", 7)
    assert (write.name, write.source, write.tier) == ("core:notes_write", "core:basics", "monitor")
    assert (clock.wire, clock.tier) == ("core__time", "safe")


def test_unknown_sources_report_nothing() -> None:
    made = Catalog()
    assert not made.report("mcp:x", [report("a")])
    assert not made.set_state("mcp:x", "READY", "")


def test_a_source_that_floods_or_repeats_names_is_bounded() -> None:
    flood = [report(f"t{n:05}") for n in range(MAX_TOOLS + 5)]
    bad = [report(""), report("x" * 300), report("t00000")]
    made = Catalog()
    made.configure("mcp:s", McpServerSettings())
    made.report("mcp:s", [*bad[:2], *flood, bad[2]])
    assert len(made.rows()) == MAX_TOOLS
    assert made.sources()["mcp:s"].over == 8
    made.report("mcp:s", [report(f"{n:0200}") for n in range(MAX_TOOLS)])
    assert sum(len(row.local) for row in made.rows()) <= 128 << 10


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("a\nb", "a"),
        (" \n\t x ", "x"),
        ("y" * 141, "y" * 139 + "…"),
        ("z" * 140, "z" * 140),
    ],
)
def test_summaries(text: str, expected: str) -> None:
    assert summary(text) == expected


def test_an_offer_has_what_is_usable_and_counts_the_rest() -> None:
    made = catalog(git=["add", "log", "rm"], off=["a", "b"], mute=[])
    made.configure("mcp:git", McpServerSettings(disabled_tools=("add",)))
    made.set_state("mcp:off", "BACKOFF", "exit code 3")
    made.set_state("mcp:mute", "INITIALIZING", "")
    found = offer(made, block=("mcp:*/RM",))
    assert [row.name for row in found.rows] == ["mcp:git/log"]
    assert [(held.source, held.count, held.by, held.reason) for held in found.withheld] == [
        ("mcp:git", 1, "disabled", "disabled in the server's entry (disabled_tools)"),
        ("mcp:git", 1, "policy", "blocked by policy"),
        ("mcp:mute", 0, "state", "starting"),
        ("mcp:off", 2, "state", "restarting, exit code 3"),
    ]


@pytest.mark.parametrize(
    ("agent", "names"),
    [
        ({}, ["mcp:files/read", "mcp:git/git_log", "mcp:git/git_reset"]),
        ({"grant": ["mcp:git/*"]}, ["mcp:git/git_log", "mcp:git/git_reset"]),
        ({"grant": []}, []),
        ({"deny": ["mcp:git/GitReset"]}, ["mcp:files/read", "mcp:git/git_log"]),
        ({"deny": ["mcp:*/git-*"]}, ["mcp:files/read"]),
        (
            {"focus": ["mcp:git/*"]},
            ["mcp:git/git_log", "mcp:git/git_reset", "mcp:files/read"],
        ),
    ],
)
def test_grant_deny_and_focus(agent: dict[str, object], names: list[str]) -> None:
    made = catalog(git=["git_log", "git_reset"], files=["read"])
    found = offer(made, msgspec.convert(agent, AgentSettings))
    assert [row.name for row in found.rows] == names
    assert sum(held.count for held in found.withheld) == 3 - len(names)


SPAWN = ("spawn_worker", "SpawnWorker", "spawn-worker", "default:spawn_worker", "a/spawn.worker")


def test_what_no_agent_may_call_is_neither_offered_nor_resolved() -> None:
    made = catalog(x=[*SPAWN, "add_mcp_server", "spawn"])
    found = offer(made)
    assert [row.name for row in found.rows] == ["mcp:x/a%2Fspawn.worker", "mcp:x/spawn"]
    (held,) = found.withheld
    assert (held.source, held.count, held.by) == ("mcp:x", 5, "deny")
    assert "never for agents" in held.reason
    rows, sources, policy = made.rows(), made.sources(), PolicySettings()
    refused = resolve("mcp:x/spawn_worker", rows, sources, policy, AgentSettings())
    assert isinstance(refused, Refusal) and refused.code == "denied"
    # A person is not an agent.
    assert not isinstance(resolve("mcp:x/spawn_worker", rows, sources, policy, PERSON), Refusal)


def test_for_an_agent_that_is_not_configured_there_is_nothing() -> None:
    made = catalog(x=["a"])
    (row,), sources, policy = made.rows(), made.sources(), PolicySettings()
    assert forbidden(row, None, policy) is not None
    assert forbidden(row, PERSON, policy) is None
    for text in ("mcp:x/a", "mcp:X/A", "mcp:nobody/a", "mcp:down/a"):
        refused = resolve(text, made.rows(), sources, policy, None)
        assert isinstance(refused, Refusal) and refused.code == "denied" and not refused.candidates


@pytest.mark.parametrize("rule", ["erase-all", "EraseAll", "default:erase_all", "mcp:x/erase.all"])
def test_a_denied_name_is_denied_in_every_spelling(rule: str) -> None:
    tools = ["erase_all", "EraseAll", "erase-all", "default:erase_all", "a/erase-all"]
    made = catalog(x=[*tools, "erase"])
    agent = AgentSettings(deny=(rule,))
    assert [row.name for row in offer(made, agent).rows] == ["mcp:x/erase"]
    for row in made.rows():
        found = resolve(row.name, made.rows(), made.sources(), PolicySettings(), agent)
        assert isinstance(found, Refusal) is (row.local != "erase")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mcp:git/git_log", "mcp:git/git_log"),
        ("mcp__git__git_log", "mcp:git/git_log"),
        ("git_log", "not_found"),
        ("mcp:git/gitlog", "not_found"),
        ("mcp:files/git_log", "not_found"),
        ("mcp:git/rm", "denied"),
        ("mcp:git/off", "denied"),
        ("mcp:down/a", "unavailable"),
        ("mcp:mute/anything", "unavailable"),
        ("mcp__mute__anything", "unavailable"),
        ("mcp:nobody/x", "not_found"),
        ("", "not_found"),
        ("x" * 100_000, "not_found"),
        ("mcp:git/%zz", "not_found"),
    ],
)
def test_resolution_is_exact(text: str, expected: str) -> None:
    made = catalog(git=["git_log", "rm", "off"], down=["a"], mute=[], files=["read"])
    made.configure("mcp:git", McpServerSettings(disabled_tools=("off",)))
    made.set_state("mcp:down", "FAILED", "command not found: x")
    made.set_state("mcp:mute", "INITIALIZING", "")
    policy = PolicySettings(block=("mcp:git/rm",))
    found = resolve(text, made.rows(), made.sources(), policy, PERSON)
    assert (found.code if isinstance(found, Refusal) else found.name) == expected


def test_a_refusal_names_candidates_and_the_reason() -> None:
    made = catalog(git=["git_log"])
    found = resolve("mcp:git/GitLog", made.rows(), made.sources(), PolicySettings(), PERSON)
    assert isinstance(found, Refusal)
    assert found.candidates == ("mcp:git/git_log",)
    assert "Did you mean mcp:git/git_log?" in found.message
    made.set_state("mcp:git", "FAILED", "command not found: x")
    gone = resolve("mcp:git/git_log", made.rows(), made.sources(), PolicySettings(), PERSON)
    assert isinstance(gone, Refusal) and "command not found: x" in gone.message


def document(text: str) -> tuple[str, bytes]:
    raw = json.dumps({"name": text}).encode()
    return hashlib.sha256(raw).hexdigest(), raw


def body(*documents: tuple[str, bytes]) -> bytes:
    return msgspec.json.encode({digest: msgspec.Raw(raw) for digest, raw in documents})


def test_documents_are_kept_while_a_worker_uses_them() -> None:
    one, two = document("one"), document("two")
    schemas = Schemas()
    assert schemas.report("mcp:a", [one[0], two[0]], body(one)) == (two[0],)
    assert schemas.report("mcp:b", [one[0]], None) == ()
    assert schemas.get([one[0], two[0], "no"]) == body(one)
    schemas.forget("mcp:a")
    assert schemas.get([one[0]]) == body(one)
    schemas.report("mcp:b", [], None)
    assert schemas.get([one[0]]) == b"{}"


def test_all_the_documents_that_a_worker_may_report_are_kept() -> None:
    """The worker's own limit and the supervisor's are one: what one reports, the other takes."""
    tool = json.dumps({"description": "x" * (500 << 10), "inputSchema": {"type": "object"}})
    found = read_tools([f'{{"name": "t{n}", {tool[1:]}'.encode() for n in range(100)])
    assert sum(map(len, found.documents.values())) > 31 << 20
    digests = list(found.documents)
    schemas = Schemas()
    assert schemas.report("mcp:a", digests, body(*found.documents.items())) == ()
    last = digests[-1]
    assert schemas.get([last]) == body((last, found.documents[last]))


def test_a_document_under_a_false_digest_is_not_taken() -> None:
    one, two = document("one"), document("two")
    schemas = Schemas()
    assert schemas.report("mcp:liar", [one[0]], body((one[0], two[1]))) == (one[0],)
    assert schemas.report("mcp:a", [one[0]], body(one)) == ()
    assert schemas.get([one[0]]) == body(one)


@pytest.mark.parametrize("raw", [b"[]", b"{", b"\xff", b'{"a":' * 10_000])
def test_documents_that_are_no_object_are_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        Schemas().report("mcp:a", [], raw)


@pytest.mark.parametrize(
    ("state", "reason", "said"),
    [
        ("STARTING", "", "is not usable now: starting. Try again in a moment"),
        ("INITIALIZING", "exited with code 3", "starting, exited with code 3. Try again"),
        ("BACKOFF", "killed by SIGKILL", "restarting, killed by SIGKILL. Try again in a moment"),
        (
            "FAILED",
            "command not found: x",
            "failed, command not found: x. See `interlock logs mcp:",
        ),
        ("STOPPED", "stopped by hand", "stopped by hand. Start it with `interlock start mcp:git`."),
        ("DEGRADED", "sign-in expired", "sign-in expired. See `interlock status mcp:git`."),
    ],
)
def test_a_refusal_says_how_the_source_is_and_what_to_do(
    state: str, reason: str, said: str
) -> None:
    made = catalog(git=["log"])
    made.set_state("mcp:git", state, reason)
    found = resolve("mcp:git/log", made.rows(), made.sources(), PolicySettings(), PERSON)
    assert isinstance(found, Refusal)
    assert said in found.message


def test_a_disabled_source_says_so() -> None:
    made = Catalog()
    made.configure("mcp:git", McpServerSettings(enabled=False))
    found = resolve("mcp:git/log", made.rows(), made.sources(), PolicySettings(), PERSON)
    assert isinstance(found, Refusal) and "disabled in the configuration" in found.message
    assert "enabled = false" in found.message
