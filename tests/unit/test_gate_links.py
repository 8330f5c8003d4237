"""Links in requests: something on the web is to be read, and no part of them is a word."""

from __future__ import annotations

import pytest
from gate_texts import GITHUB, NOTEBOOKLM

from interlock.supervisor.gate import GateIndex, SourceText, decide
from interlock.supervisor.gate.links import links
from interlock.supervisor.shipped import tables

FETCH = SourceText(
    "mcp:fetch",
    "fetch",
    "",
    (("fetch", "Fetches a URL on the internet and gives its text, as markdown if wanted"),),
)
ORGS = SourceText(
    "mcp:forge",
    "forge",
    "",
    (
        ("list_org_members", "Show who is in an org"),
        ("get_org", "Show one org"),
        ("read_paper", "Read a paper of an org, by its title"),
    ),
)
TIME = SourceText("mcp:clock", "clock", "", (("current_time", "Tell the time in a time zone"),))
INDEX = GateIndex.build([FETCH, ORGS, TIME, GITHUB, NOTEBOOKLM], tables())


@pytest.mark.parametrize(
    "text",
    [
        "download https://host.example/paper/file.pdf",
        "Download the file at https://example.com/a.pdf",
        "summarize https://en.host.example/wiki/Whale",
        "what does www.host.example say today?",
        "lade https://host.example/datei.pdf herunter",
        "fetch example.org",
    ],
)
def test_a_link_is_for_a_server_that_reads_what_links_lead_to(text: str) -> None:
    assert "mcp:fetch" in decide(INDEX, text).offered


@pytest.mark.parametrize(
    "text",
    [
        "open www.example.org",
        "explain https://example.org/paper to me",
        "my website https://example.org/org/members is slow, what is wrong?",
    ],
)
def test_no_part_of_a_link_is_a_word(text: str) -> None:
    assert decide(INDEX, text).offered == ("mcp:fetch",)


def test_a_host_names_its_server_and_its_path_does_not() -> None:
    assert "mcp:github" in decide(INDEX, "look at https://github.com/a/b/issues/12").offered
    assert "mcp:github" not in decide(INDEX, "look at https://a.example/issues/12").offered


@pytest.mark.parametrize("text", ["Read e.g. main.rs", "mail jenny@example.org", "at 12:30", ""])
def test_what_is_no_link_stays(text: str) -> None:
    assert links(text) is None


def test_links_with_brackets_around_them_and_without_a_host() -> None:
    found = links("see (https://host.example/a.csv), then http:// alone")
    assert found is not None
    assert found.kinds == ("csv",)
    assert decide(INDEX, "http://") == decide(INDEX, "HTTP://")
    capital = links("HTTPS://Host.Example/A.PDF?x=1.zip")
    assert capital is not None
    assert capital.kinds == ("pdf",)
