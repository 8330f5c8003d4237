"""The search for what a turn lacks."""

from __future__ import annotations

from interlock.supervisor.catalog.find import find
from interlock.supervisor.catalog.rows import CatalogRow


def row(name: str, summary: str = "") -> CatalogRow:
    return CatalogRow(
        name=name,
        wire=name.replace(":", "__").replace("/", "__"),
        kind="mcp",
        source=name.partition("/")[0],
        tier="monitor",
        connected=True,
        reason="",
        summary=summary,
        local=name,
    )


ROWS = [
    row("mcp:github/create_pull_request", "Opens a pull request"),
    row("mcp:github/listIssues", "Lists the issues of a repository"),
    row("mcp:mail/search", "Searches mail"),
    row("mcp:report/make", "Makes a report"),
    row("mcp:wetter/vorhersage", "Das Wetter von morgen, auch für Köln"),
]


def names(query: str, limit: int = 8) -> list[str]:
    return [found.name for found in find(query, ROWS, limit)]


def test_words_of_names_count_most() -> None:
    assert names("pull requests")[0] == "mcp:github/create_pull_request"
    assert names("an issue")[0] == "mcp:github/listIssues"
    assert names("Wetter in Köln") == ["mcp:wetter/vorhersage"]


def test_only_whole_words_and_beginnings_fit() -> None:
    assert names("ear") == []
    assert names("repo") == ["mcp:report/make", "mcp:github/listIssues"]
    assert names("rep") == []


def test_an_exact_name_comes_first() -> None:
    assert names("mcp:mail/search issue")[0] == "mcp:mail/search"
    assert names("mcp__report__make issue")[0] == "mcp:report/make"


def test_nothing_fits_nothing() -> None:
    assert names("") == names("   ?!") == names("zebra") == []
    assert find("zebra", [], 8) == ()


def test_answers_are_bounded_and_in_a_fixed_order() -> None:
    many = [row(f"mcp:s/tool_{n}", "the same") for n in range(50)]
    assert [found.name for found in find("same", many, 1000)] == [
        f"mcp:s/tool_{n}" for n in range(20)
    ]
    assert len(find("same " * 10_000, many, 0)) == 1
