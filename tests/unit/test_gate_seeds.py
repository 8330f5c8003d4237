"""The requests that the gate was first described with, and those that older gates got wrong."""

from __future__ import annotations

import pytest
from gate_texts import GITHUB, NOTEBOOKLM, NOTHING, SEVEN

from interlock.supervisor.gate import GateIndex, decide, explain
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
