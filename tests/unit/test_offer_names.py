from __future__ import annotations

import subprocess
import sys
import time

import pytest

from interlock.bus.names import CapabilityName, wire_name
from interlock.bus.records import OfferRow
from interlock.workers.agent.offer import HINTS, Offer


def row(name: str) -> OfferRow:
    parsed = CapabilityName.parse(name)
    return OfferRow(
        name=name, wire=wire_name(parsed), worker=str(parsed.worker), local=parsed.name or name
    )


OFFER = Offer(
    row(name)
    for name in ("mcp:git/git_status", "mcp:git/git_log", "mcp:a/run_shell", "mcp:b/RunShell")
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("mcp:git/git_status", "mcp:git/git_status"),
        ("mcp__git__git_status", "mcp:git/git_status"),
        ("git-status", "mcp:git/git_status"),
        ("GitStatus", "mcp:git/git_status"),
        ("default:git_log", "mcp:git/git_log"),
        ("mcp:b/run-shell", "mcp:b/RunShell"),
    ],
)
def test_a_spelling_that_fits_one_capability_is_found(text: str, name: str) -> None:
    found = OFFER.find(text)
    assert isinstance(found, OfferRow)
    assert found.name == name


def test_what_fits_two_is_refused_with_both() -> None:
    assert OFFER.find("run_shell") == ("mcp:a/run_shell", "mcp:b/RunShell")


def test_a_source_that_is_named_never_means_another() -> None:
    assert not isinstance(OFFER.find("mcp:c/run_shell"), OfferRow)


def test_an_update_adds_replaces_and_takes_away() -> None:
    offer = Offer([row("mcp:git/git_status"), row("mcp:a/x")])
    live = offer.rows
    offer.update([row("mcp:a/y")], removed=["mcp:a/x", "mcp:never/there"])
    assert list(live) == ["mcp:git/git_status", "mcp:a/y"]
    assert offer.find("mcp__a__x") != row("mcp:a/x")
    assert offer.find("y") == row("mcp:a/y")


def test_an_agent_process_loads_no_sdk() -> None:
    program = (
        "import sys, interlock.workers.agent.worker\n"
        "print([name for name in ('mcp', 'pydantic', 'httpx', 'rich') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, timeout=30
    )
    assert done.stdout == "[]\n", done.stderr


def test_close_names_are_looked_for_a_bounded_number_of_times() -> None:
    """A step may have a thousand names that mean nothing; a spelling is found all the same."""
    offer = Offer(row(f"mcp:s{n // 50}/tool_get_issue_{n}") for n in range(100))
    near = [offer.find("tool_get_isue_7") for _ in range(2 * HINTS)]
    assert all(near[:HINTS]) and not any(near[HINTS:])
    found = offer.find("ToolGetIssue7")
    assert isinstance(found, OfferRow) and found.name == "mcp:s0/tool_get_issue_7"


@pytest.mark.parametrize("text", ["functions.run", "x" * 1_000_000, "mcp:s1/" + "run_" * 250_000])
def test_no_name_takes_time_with_the_square_of_the_offer(text: str) -> None:
    """Of 1,500 servers with one tool of a name each it took 13 s to find out which is meant."""
    offer = Offer(row(f"mcp:s{n}/run") for n in range(1_500))
    begun = time.process_time()
    assert isinstance(offer.find(text), tuple)
    assert time.process_time() - begun < 3
