"""What is no word, since nobody writes such long ones, costs the gate nothing."""

from __future__ import annotations

import time

import pytest
from gate_texts import ALL

from interlock.bus.names import CapabilityName, resolve_spelling
from interlock.supervisor.gate import GateIndex, SourceText, decide, explain
from interlock.supervisor.gate.compounds import split
from interlock.supervisor.gate.request import read
from interlock.supervisor.gate.words import LONGEST, MOST_PAIRS, english, german, humps
from interlock.supervisor.shipped import tables

INDEX = GateIndex.build(ALL, tables())
GERMAN = "Bitte prüfe für mich diese Daten: "
QUICK = 1.0
"""Seconds of the processor that no single text may take; each took from 2 s to minutes."""


@pytest.mark.parametrize(
    "text",
    [
        GERMAN + "x" * 10_000,
        GERMAN + "0f" * 5_000,
        GERMAN + "ö" * 10_000,
        " ".join([GERMAN, *("x" * n for n in range(900, 950))]),
    ],
)
def test_a_word_of_thousands_of_letters_holds_nobody(text: str) -> None:
    began = time.process_time()
    decide(INDEX, text)
    explain(INDEX, text)
    assert time.process_time() - began < QUICK


def test_a_long_word_is_no_evidence_and_is_not_split() -> None:
    """Promise attacked: what is kept of words is bounded in bytes, not only in their number."""
    for length in (LONGEST + 1, 100_000):
        assert english("x" * length) == german("x" * length) == ()
    asked: list[str] = []
    split("geburtstag" * 10 + "kalender", lambda part: bool(asked.append(part)))
    assert asked == []
    assert german("q" * LONGEST)


def test_a_text_with_a_capital_every_other_letter_is_not_thousands_of_words() -> None:
    assert humps("aB" * 30_000) == []
    assert len(read(INDEX, " ".join(["xyQr" * 20] * 400)).terms) < 1_000


def test_a_text_without_spaces_counts_up_to_its_limit_and_is_not_kept() -> None:
    run = "天气预报" * 5_000
    assert len(english(run)) == len(german(run)) == MOST_PAIRS
    index = GateIndex.build(ALL, tables())
    decide(index, run)
    assert not index.found
    assert english("天气预报") == ("天气", "气预", "预报")


def test_a_description_of_one_word_is_read_as_none() -> None:
    index = GateIndex.build(
        [SourceText("mcp:dump", "dump", "x" * 500, (("chart", "Y" * 100_000),), ("z" * 50_000,))],
        tables(),
    )
    assert set(index.postings) == {"chart"}


def test_a_name_of_a_megabyte_means_nothing() -> None:
    began = time.process_time()
    assert resolve_spelling("a" + "\u0323\u0301" * 50_000, [CapabilityName("mcp", "a", "b")]) == ()
    assert time.process_time() - began < QUICK
