"""What the gate reckons in a quick way is, to the last bit, what plain code gives."""

from __future__ import annotations

import re
from math import exp
from operator import mul

import pytest
from gate_texts import ALL
from hypothesis import given
from hypothesis import strategies as st

from interlock.supervisor.bench.gate import NOUNS, REQUESTS, servers
from interlock.supervisor.gate import GateIndex, decide, explain
from interlock.supervisor.gate.gather import gather
from interlock.supervisor.gate.named import calls
from interlock.supervisor.gate.request import read
from interlock.supervisor.gate.score import alone, beside, points, worth_a_look, worth_the_name
from interlock.supervisor.gate.words import tokens
from interlock.supervisor.shipped import tables

INDEX = GateIndex.build([*ALL, *servers(60)], tables())
TEXTS = st.one_of(
    st.sampled_from(REQUESTS),
    st.lists(st.sampled_from([*NOUNS, "the", "my", "NotebookLM", "and"]), max_size=9).map(" ".join),
    st.text(max_size=80),
)


@given(TEXTS)
def test_what_is_offered_has_the_score_and_the_reason_that_are_explained(text: str) -> None:
    rows = [row for row in explain(INDEX, text).sources if row.offered]
    assert [row[:4] for row in decide(INDEX, text).sources] == [row[:4] for row in rows]


@given(TEXTS)
def test_points_are_the_logistic_functions_of_what_stands_beside_each_other(text: str) -> None:
    request = read(INDEX, text)
    said, called = gather(INDEX, request), calls(INDEX, request)
    hits = worth_the_name(INDEX, said, worth_a_look(said, called))
    plain: dict[str, float] = {}
    for source, values in beside(hits, alone(INDEX, said, hits, called)):
        numbers = INDEX.numbers.others if plain else INDEX.numbers.best
        plain[source] = 1 / (1 + exp(-sum(map(mul, numbers, values))))
    assert points(INDEX, said, called) == plain
    quick = points(INDEX, said, called, INDEX.least)
    offered = {row: have for row, have in plain.items() if have >= INDEX.numbers.threshold}
    assert {row: have for row, have in quick.items() if row in offered} == offered


@pytest.mark.parametrize(
    "text", ["", "it's", "'so' said", "a''b", "x_y-z", "\x00 a\x1fb\x7f", "no quotes"]
)
def test_words_of_ascii_text(text: str) -> None:
    assert tokens(text) == re.findall(r"[A-Za-z0-9]+(?:'[A-Za-z0-9]+)*", text)
