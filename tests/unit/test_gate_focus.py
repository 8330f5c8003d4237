"""An agent's focus comes from the words of its name and description."""

from __future__ import annotations

from interlock.supervisor.gate import FocusRow, choose
from interlock.supervisor.shipped import tables

TABLE = tables().frequencies

ROWS = (
    FocusRow("plugin:gmail", "Gmail", "Read and send mail"),
    FocusRow("plugin:calendar", "Google Calendar", "Appointments and invitations"),
    FocusRow("mcp:github/create_pull_request", "create_pull_request", "Propose a branch"),
    FocusRow("mcp:github/list_issues", "list_issues", "Show the issues of a repository"),
    FocusRow("mcp:weather", "weather", "Forecasts"),
)


def test_a_service_that_is_named() -> None:
    assert choose("inbox", "A daily overview of my Gmail inbox", ROWS, TABLE) == ("plugin:gmail",)


def test_titles_count_more_than_descriptions() -> None:
    assert choose("reviewer", "Looks at pull requests and issues of a repository", ROWS, TABLE) == (
        "mcp:github/list_issues",
        "mcp:github/create_pull_request",
    )


def test_parts_of_words_and_common_words_do_not_count() -> None:
    assert choose("reporter", "Creates lists and shows them", ROWS, TABLE) == ()


def test_at_most_six_in_a_fixed_order() -> None:
    rows = [FocusRow(f"mcp:s{n}", "weather", "") for n in range(9)]
    expected = tuple(f"mcp:s{n}" for n in range(6))
    assert (
        choose("x", "the weather", rows, TABLE)
        == choose("x", "the weather", rows[::-1], TABLE)
        == expected
    )


def test_a_name_is_enough() -> None:
    assert choose("weatherBot", "", ROWS, TABLE) == ("mcp:weather",)
