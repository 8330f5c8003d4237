"""The requests that the gate was first described with, and those that older gates got wrong."""

from __future__ import annotations

import pytest
from gate_texts import GITHUB, NOTEBOOKLM, NOTHING, SEVEN

from interlock.supervisor.gate import GateIndex, SourceText, decide, explain
from interlock.supervisor.shipped import tables

INDEX = GateIndex.build((GITHUB, NOTEBOOKLM), tables())


@pytest.mark.parametrize("text", SEVEN)
def test_the_seven_requests(text: str) -> None:
    assert decide(INDEX, text).offered == SEVEN[text]


@pytest.mark.parametrize("text", NOTHING)
def test_what_older_gates_got_wrong(text: str) -> None:
    assert decide(INDEX, text).offered == ()


@pytest.mark.parametrize(
    "spelling", ["NotebookLM", "notebooklm", "notebook lm", "Notebook LM", "notebook-lm"]
)
@pytest.mark.parametrize("text", ["{}: sum this up", "Put it into {}", "was weiß {} darüber?"])
def test_a_name_in_any_spelling(text: str, spelling: str) -> None:
    decision = explain(INDEX, text.format(spelling))
    rows = {row.source: row for row in decision.sources}
    assert decision.offered == ("mcp:notebooklm",)
    assert rows["mcp:notebooklm"].by == "name"
    assert rows["mcp:github"].by == "gate"


TINY = SourceText(
    "mcp:notebooklm",
    "notebooklm-mcp",
    "",
    (("report_create", "Create a report"), ("note_create", "Create a note")),
)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("write a report", ()),
        ("Write me a short report", ()),
        ("create a new file", ()),
        ("Erstelle ein Dokument", ()),
        ("schreib einen Bericht", ()),
        ("Draft a report about whales", ()),
        ("create a long document on the history of Lisbon", ()),
        ("Write a note for my neighbour about the parcel", ()),
        ("Schreib einen Bericht über Wale", ()),
        ("make a report in NotebookLM", ("mcp:notebooklm",)),
    ],
)
def test_a_request_for_just_any_text_is_about_no_source(text: str, right: tuple[str, ...]) -> None:
    assert decide(GateIndex.build((TINY,), tables()), text).offered == right


def test_it_is_about_a_source_that_is_named_after_it() -> None:
    notes = SourceText("mcp:notes", "apple-notes", "", (("create_note", "Create a note"),))
    index = GateIndex.build((TINY, notes), tables())
    assert decide(index, "make a note").offered == ("mcp:notes",)
