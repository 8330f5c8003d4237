"""What a trusted file forbids lasts until a person says otherwise, whatever becomes of the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from config_place import Place, tier

from interlock.supervisor.config import Loaded, load
from interlock.supervisor.config.reading import TRUST_FILE
from interlock.supervisor.config.trust import trust_key, write_trust

RULES = '[policy]\nblock = ["mcp:x/echo"]\n[agents.main]\ndeny = ["mcp:x/*"]\n'


class Below(Place):
    """`up` was called in a folder below the workspace, whose file is trusted."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.start = self.workspace / "a" / "b"
        self.start.mkdir(parents=True)
        self.nearer = self.start / "interlock.toml"
        self.own.write_text(RULES)
        self.trust(self.own)

    def read(self, previous: Loaded | None = None, explicit: Path | None = None) -> Loaded:
        """A reading as the supervisor does it; without `previous` at a start."""
        return load(self.home, self.start, explicit, self.environ, previous)


@pytest.fixture
def place(tmp_path: Path) -> Below:
    below = Below(tmp_path)
    assert (tier(below.read()), below.read().problems) == ("block", ())
    return below


def empty_nearer(place: Below) -> None:
    place.nearer.write_text("")


def shared_nearer(place: Below) -> None:
    (place.start / ".mcp.json").write_text('{"mcpServers": {}}')


def deleted(place: Below) -> None:
    place.own.unlink()


def folder_deleted(place: Below) -> None:
    place.workspace.rename(place.workspace.with_name("elsewhere"))


def folder_exchanged_for_a_link(place: Below) -> None:
    folder_deleted(place)
    evil = place.workspace.with_name("evil")
    (evil / "a" / "b").mkdir(parents=True)
    (evil / "interlock.toml").write_text("")
    place.workspace.symlink_to(evil)


def folder_exchanged_for_an_empty_one(place: Below) -> None:
    folder_deleted(place)
    evil = place.workspace.with_name("evil")
    (evil / "a" / "b").mkdir(parents=True)
    place.workspace.symlink_to(evil)


def changed(place: Below) -> None:
    place.own.write_text("")


def broken(place: Below) -> None:
    place.own.write_text("[policy")


def linked_to_the_users_file(place: Below) -> None:
    place.user.write_text("")
    place.own.unlink()
    place.own.symlink_to(place.user)


def linked_from_the_local_file(place: Below) -> None:
    place.local.symlink_to(place.own)


def exchanged_for_a_folder(place: Below) -> None:
    place.own.unlink()
    place.own.mkdir()


def record_deleted(place: Below) -> None:
    (place.home / TRUST_FILE).unlink()


def record_damaged(place: Below) -> None:
    (place.home / TRUST_FILE).write_text("{")


HARM = [
    empty_nearer,
    deleted,
    folder_deleted,
    folder_exchanged_for_a_link,
    folder_exchanged_for_an_empty_one,
    changed,
    broken,
    linked_to_the_users_file,
    exchanged_for_a_folder,
    record_deleted,
    record_damaged,
]
HARMLESS = [shared_nearer, linked_from_the_local_file]


@pytest.mark.parametrize("harm", [*HARM, *HARMLESS])
def test_nothing_but_a_person_takes_rules_away_from_a_running_supervisor(
    place: Below, harm: Callable[[Below], None]
) -> None:
    first = place.read()
    harm(place)
    second = place.read(first)
    third = place.read(second)
    assert third.settings == second.settings == first.settings
    if harm in HARM:  # and somebody is told, with what to do
        assert third.problems and third.problems == second.problems
        assert all(problem.fix for problem in third.problems if problem.severity == "warning")


AT_A_START = [
    (empty_nearer, "block"),
    (shared_nearer, "block"),
    (linked_from_the_local_file, "block"),
    (deleted, "ask"),
    (folder_deleted, "ask"),
    (changed, "ask"),
    (broken, "ask"),
    (linked_to_the_users_file, "ask"),
    (exchanged_for_a_folder, "ask"),
    (record_damaged, "ask"),
]


@pytest.mark.parametrize(("harm", "expected"), AT_A_START)
def test_nothing_but_a_person_opens_a_door_at_a_start(
    place: Below, harm: Callable[[Below], None], expected: str
) -> None:
    """What was forbidden may not be known any more: then everything asks, and it is told."""
    harm(place)
    assert tier(place.read()) == expected
    again = place.read(place.read())
    assert tier(again) == expected
    if expected == "ask":
        assert any(
            "every capability asks" in problem.message
            or problem.code in ("syntax", "unreadable", "trust_file")
            for problem in again.problems
        )


def test_a_file_that_is_gone_is_told_of_and_read_again_when_it_is_back(place: Below) -> None:
    first = place.read()
    place.own.rename(place.own.with_name("stash"))
    away = place.read(first)
    (problem,) = away.problems
    assert (problem.code, problem.file) == ("gone", str(place.own))
    assert "goes on" in problem.message and f"--revoke {place.own}" in problem.fix
    assert place.own in away.files
    place.own.with_name("stash").rename(place.own)
    back = place.read(away)
    assert back.problems == () and back.settings == first.settings


def test_what_a_person_takes_back_is_gone_at_once(place: Below) -> None:
    first = place.read()
    place.own.unlink()
    away = place.read(first)
    place.revoke()
    for loaded in (place.read(away), place.read()):
        assert (tier(loaded), loaded.problems) == ("safe", ())


def test_a_nearer_file_counts_as_soon_as_a_person_trusts_it(place: Below) -> None:
    first = place.read()
    assert place.nearer in first.files
    place.nearer.write_text('[policy]\nblock = ["mcp:x/other"]\n')
    second = place.read(first)
    told = second.problems[-1]
    assert told.fix == f"interlock trust {place.nearer}"
    assert (
        told.code == "nearer" and "until" in told.message and str(place.workspace) in told.message
    )
    place.trust(place.nearer)
    for loaded in (place.read(second), place.read()):
        assert (tier(loaded), tier(loaded, "mcp:x/other")) == ("safe", "block")
        assert loaded.problems == ()


def test_a_nearer_file_that_is_named_counts(place: Below) -> None:
    place.nearer.write_text('[policy]\nblock = ["mcp:x/other"]\n')
    loaded = place.read(explicit=place.nearer)
    assert (tier(loaded, "mcp:x/other"), loaded.problems) == ("block", ())


def test_a_new_content_that_was_trusted_but_never_seen_keeps_what_forbade_before(
    place: Below,
) -> None:
    first = place.read()
    write_trust(place.home / TRUST_FILE, {trust_key(place.own): "0" * 64})
    second = place.read(first)
    assert (tier(second), tier(second, "mcp:x/other")) == ("block", "ask")


def test_servers_that_forbid_nothing_do_not_make_everything_ask(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.shared.write_text('{"mcpServers": {"x": {"command": "y"}}}')
    place.trust(place.shared)
    first = place.load()
    place.shared.unlink()
    away = place.load(previous=first)
    assert list(away.settings.mcp_servers) == ["x"]
    assert [problem.code for problem in away.problems] == ["gone"]
    assert (tier(place.load()), place.load().problems) == ("safe", ())


def test_the_end_of_a_users_own_file_is_his_wish(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.user.write_text(RULES)
    first = place.load()
    place.user.unlink()
    away = place.load(previous=first)
    assert (tier(away), away.problems) == ("safe", ())


def test_an_untrusted_file_above_a_trusted_local_one_takes_nothing_away(tmp_path: Path) -> None:
    """A folder above may belong to somebody else, as that for temporary files does."""
    place = Place(tmp_path)
    place.local.write_text(RULES)
    place.trust(place.local)
    first = place.load()
    (tmp_path / "interlock.toml").write_text("")
    for loaded in (place.load(previous=first), place.load()):
        assert (tier(loaded), loaded.problems) == ("block", ())
