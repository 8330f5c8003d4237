"""A changed configuration in a running supervisor: only what it means happens, nothing else."""

from __future__ import annotations

from pathlib import Path

from supervised import DIRECT_AGENT, Supervised, rogue_toml, timing

from interlock.bus import messages
from interlock.bus.endpoints import Home
from interlock.supervisor.config.trust import changing_trust, digest, trust_key


def change(interlock: Supervised, *parts: str) -> dict[str, object]:
    """Write the file and wait until the supervisor noticed by itself."""
    place = interlock.mark()
    interlock.config.write_text("".join(parts))
    return interlock.wait_event("config.reloaded", after=place)


def test_each_change_does_what_it_means(tmp_path: Path) -> None:
    base = timing() + DIRECT_AGENT
    with Supervised(tmp_path, base + rogue_toml("x") + rogue_toml("y")) as interlock:
        x = interlock.wait_state("mcp:x", "READY")
        y = interlock.wait_state("mcp:y", "READY")
        agent = interlock.wait_state("agent:main", "READY")

        event = change(interlock, base, rogue_toml("x", concurrency=2), rogue_toml("y"))
        assert event["applied"] == ("mcp:x",) and event["restarted"] == ()
        assert interlock.worker("mcp:x")["pid"] == x["pid"]

        place = interlock.mark()
        event = change(interlock, base, rogue_toml("x", "noise"), rogue_toml("y"))
        assert event["restarted"] == ("mcp:x",)
        assert interlock.wait_event("worker.ready", "mcp:x", place)["generation"] == 2

        place = interlock.mark()
        event = change(interlock, base, rogue_toml("x", "noise"), rogue_toml("z"))
        assert (event["added"], event["removed"]) == (("mcp:z",), ("mcp:y",))
        interlock.wait_event("worker.stopped", "mcp:y", place)
        interlock.wait_event("worker.ready", "mcp:z", place)
        names = [row["name"] for row in interlock.client.status()["workers"]]
        assert names == ["agent:main", "mcp:x", "mcp:z", "core:basics"]
        assert interlock.worker("mcp:x")["generation"] == 2
        assert interlock.worker("agent:main")["pid"] == agent["pid"]
        assert y["pid"] not in {row["pid"] for row in interlock.client.status()["workers"]}

        place = interlock.mark()
        change(interlock, base, rogue_toml("x", "noise"), rogue_toml("z", enabled=False))
        interlock.wait_event("worker.stopped", "mcp:z", place)
        place = interlock.mark()
        change(interlock, base, rogue_toml("x", "noise"), rogue_toml("z"))
        assert interlock.wait_event("worker.ready", "mcp:z", place)["generation"] == 2


def test_rules_that_mean_nothing_are_told_of_once_it_is_known(tmp_path: Path) -> None:
    base = timing() + DIRECT_AGENT + 'deny = ["mcp:z"]\n' + rogue_toml("x")
    rules = '[policy]\nblock = ["mcp:x/ehco", "mcp:x/fail", "mcp:y/ehco"]\n'

    def told(interlock: Supervised) -> list[tuple[str, str]]:
        rows = [row for row in interlock.attention() if row["code"] == "matches_nothing"]
        return [(row["message"].partition(": ")[2], row["fix"]) for row in rows]

    # A server that is never ready may have anything; what is not there at all has nothing.
    with Supervised(tmp_path, base + rules + rogue_toml("y", "mute_init")) as interlock:
        interlock.wait_state("mcp:x", "READY")
        near_x = "Did you mean mcp:x"
        fix = near_x + "/echo?"
        event = interlock.wait_event("attention.changed", code="matches_nothing", fix=fix)
        assert "interlock-test.toml:" in event["message"]
        assert dict(told(interlock)) == {
            "'mcp:x/ehco' in policy.block matches nothing that mcp:x serves": near_x + "/echo?",
            "'mcp:z' in agents.main.deny matches nothing that is configured": near_x + "?",
        }
        place = interlock.mark()
        text = base.replace('"mcp:z"', '"mcp:x"') + rules.replace("mcp:x/ehco", "mcp:x/echo")
        interlock.config.write_text(text + rogue_toml("y", "mute_init"))
        for _ in range(2):
            gone = interlock.wait_event(
                "attention.changed", after=place, code="matches_nothing", clear=True
            )
            place = interlock.events.index(gone) + 1
        assert told(interlock) == []


def test_a_disabled_tool_is_told_as_disabled(tmp_path: Path) -> None:
    config = timing() + rogue_toml("x", disabled_tools=["fail"])
    with Supervised(tmp_path, config) as interlock:
        count = interlock.wait_state("mcp:x", "READY")["tools"]
        refused = interlock.client.call("mcp:x/fail")
        assert refused.outcome == "denied"
        assert "disabled in the server's entry (disabled_tools)" in str(refused.content)
        place = interlock.mark()
        interlock.config.write_text(timing() + rogue_toml("x"))
        interlock.wait_event("catalog.changed", "mcp:x", place)
        assert interlock.client.call("mcp:x/fail").outcome == "tool_error"
        assert interlock.worker("mcp:x")["tools"] == count + 1


def test_a_broken_file_keeps_what_runs_and_says_where(tmp_path: Path) -> None:
    config = timing() + rogue_toml("x")
    with Supervised(tmp_path, config) as interlock:
        before = interlock.wait_state("mcp:x", "READY")
        place = interlock.mark()
        interlock.config.write_text(config + "[mcp_servers.x\n")
        event = interlock.wait_for(
            lambda event: event["topic"] == "attention.changed" and not event["clear"], place
        )
        assert "interlock-test.toml" in event["message"]
        rows = interlock.attention()
        assert [Path(row["file"]).name for row in rows if row.get("file")] == [
            "interlock-test.toml"
        ]
        assert [row["fix"] for row in rows] == [
            "Mend the file, it is read again at once; until then what it said before goes on."
        ]
        assert interlock.worker("mcp:x")["pid"] == before["pid"]
        place = interlock.mark()
        interlock.config.write_text(config)
        interlock.wait_event("attention.changed", after=place, clear=True)
        assert interlock.attention() == []
        assert interlock.worker("mcp:x")["pid"] == before["pid"]


def test_a_bad_entry_keeps_what_runs_and_is_named(tmp_path: Path) -> None:
    config = timing() + rogue_toml("x")
    with Supervised(tmp_path, config + rogue_toml("y")) as interlock:
        before = interlock.wait_state("mcp:x", "READY")
        running = interlock.wait_state("mcp:y", "READY")
        change(interlock, config, rogue_toml("y", "noise", concurrency="many"))
        problem = next(row for row in interlock.attention() if row["name"] == "mcp:y")
        assert problem["line"] > 0 and "concurrency" in problem["message"]
        assert "as it was before" in problem["message"]
        assert interlock.worker("mcp:x")["pid"] == before["pid"]
        assert interlock.worker("mcp:y")["pid"] == running["pid"]
        place = interlock.mark()
        change(interlock, config, rogue_toml("y", "noise"))
        assert interlock.wait_event("worker.ready", "mcp:y", place)["generation"] == 2
        assert interlock.attention() == []


def test_a_worker_that_was_stopped_by_hand_stays_stopped(tmp_path: Path) -> None:
    config = timing()
    with Supervised(tmp_path, config + rogue_toml("x")) as interlock:
        interlock.wait_state("mcp:x", "READY")
        interlock.client.control("stop", "mcp:x")
        change(interlock, config, rogue_toml("x", "noise"))
        assert interlock.worker("mcp:x")["state"] == "STOPPED"
        assert interlock.client.control("start", "mcp:x")["state"] == "READY"


def test_a_reload_by_request_says_what_changed(tmp_path: Path) -> None:
    config = timing() + rogue_toml("x")
    with Supervised(tmp_path, config) as interlock:
        interlock.wait_state("mcp:x", "READY")
        answer = interlock.client.request(messages.Reload)
        assert answer["problems"] == []
        assert not any(answer["changed"].values())


def test_rules_of_a_trusted_file_outlast_its_absence(tmp_path: Path) -> None:
    """`up` in a folder below; the file above goes and comes back, an empty one appears nearer."""
    workspace = tmp_path / "work"
    start = workspace / "sub"
    start.mkdir(parents=True)
    own, nearer = workspace / "interlock.toml", start / "interlock.toml"
    own.write_text(timing() + '[policy]\nblock = ["mcp:x/echo"]\n' + rogue_toml("y"))
    with changing_trust(Home(tmp_path / "home").trust) as trusted:
        trusted[trust_key(own)] = digest(own.read_bytes())
    with Supervised(tmp_path, rogue_toml("x"), workspace=start) as interlock:

        def told(code: str, **fields: object) -> None:
            interlock.wait_event("attention.changed", after=place, code=code, **fields)
            assert interlock.client.call("mcp:x/echo").outcome == "denied"
            assert interlock.worker("mcp:y")["pid"] == pid

        interlock.wait_state("mcp:x", "READY")
        pid = interlock.wait_state("mcp:y", "READY")["pid"]
        assert interlock.client.call("mcp:x/echo").outcome == "denied"
        place = interlock.mark()
        own.rename(workspace / "stash")
        told("gone", clear=False)
        place = interlock.mark()
        (workspace / "stash").rename(own)
        told("gone", clear=True)
        place = interlock.mark()
        nearer.write_text("")
        told("nearer", clear=False)
        row = next(row for row in interlock.attention() if row["code"] == "nearer")
        assert f"trusted in {workspace} counts" in row["message"]
        place = interlock.mark()
        nearer.unlink()
        told("nearer", clear=True)
        assert interlock.attention() == []
