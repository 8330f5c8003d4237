"""The gate decides by whole words, the same for the same state, and says why."""

from __future__ import annotations

import dataclasses
from operator import mul

import pytest
from gate_texts import ALL, GITHUB, KALENDER, LINEAR, NOTEBOOKLM, NOTION, WEATHER
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.supervisor.gate import (
    Context,
    Decision,
    GateIndex,
    SourceText,
    decide,
    explain,
)
from interlock.supervisor.gate.boilerplate import strip
from interlock.supervisor.gate.compounds import split
from interlock.supervisor.gate.frequencies import Frequencies, parse
from interlock.supervisor.gate.gather import gather
from interlock.supervisor.gate.named import calls
from interlock.supervisor.gate.request import read
from interlock.supervisor.gate.score import alone, features, missed, worth_a_look
from interlock.supervisor.gate.vectors import NONE, near
from interlock.supervisor.gate.vectors import parse as parse_vectors
from interlock.supervisor.gate.words import english, german, is_german, pairs, parts, tokens
from interlock.supervisor.shipped import tables

INDEX = GateIndex.build(ALL, tables())
WORDS = (
    "open close issue issues repo report reporter weather forecast flashcards notebook lm pull "
    "request branch Linear Notion in with mit dem Termin Terminals heute page ticket the a it 天气"
).split()
REQUESTS = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


def offered(text: str, *recent: tuple[str, ...]) -> tuple[str, ...]:
    return decide(INDEX, text, Context(recent)).offered


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("What is on my list in Linear?", "mcp:linear"),
        ("Could you look it up in Notion please", "mcp:notion"),
        ("Schreib das mit Notion auf", "mcp:notion"),
        ("please ask Linear what comes next", "mcp:linear"),
    ],
)
def test_an_ordinary_word_used_as_a_name(text: str, source: str) -> None:
    rows = {row.source: row for row in explain(INDEX, text).sources}
    assert rows[source].by == "name"


@pytest.mark.parametrize(
    "text",
    [
        "solve this linear equation",
        "I have no notion of what you mean",
        "Linear algebra is hard",
        "What Is The Notion Behind All Of This",
        "whether that is so depends on the notion",
    ],
)
def test_an_ordinary_word_that_is_no_name(text: str) -> None:
    assert offered(text) == ()


@pytest.mark.parametrize(
    ("text", "never"),
    [
        ("report", "mcp:github"),
        ("the reporter reports", "mcp:github"),
        ("expression", "mcp:github"),
        ("tissue", "mcp:github"),
        ("emerge", "mcp:github"),
        ("Wie viele Terminals hat der Flughafen?", "mcp:kalender"),
        ("der Terminator läuft", "mcp:kalender"),
    ],
)
def test_part_of_a_word_is_no_word(text: str, never: str) -> None:
    (row,) = (row for row in explain(INDEX, text).sources if row.source == never)
    assert not row.evidence
    assert not row.offered


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("Habe ich morgen einen Termin?", "mcp:kalender"),
        ("Welche Termine habe ich heute?", "mcp:kalender"),
        ("Wie wird die Wettervorhersage für die Stadt?", "mcp:weather"),
        ("make an appointment", "mcp:kalender"),
        ("merge the PR", "mcp:github"),
    ],
)
def test_cards_stems_and_compounds(text: str, source: str) -> None:
    assert offered(text) == (source,)


@pytest.mark.parametrize("text", ["and close that one too", "Do it again", "mach das auch zu"])
def test_a_follow_up_keeps_what_the_last_turn_had(text: str) -> None:
    assert offered(text) == ()
    assert offered(text, ("mcp:github",)) == ("mcp:github",)
    rows = {row.source: row for row in explain(INDEX, text, Context((("mcp:github",),))).sources}
    assert rows["mcp:github"].by == "context"


@pytest.mark.parametrize(
    "text",
    [
        "is it going to rain in Lisbon?",
        "what does a flight to Lisbon cost, and is it direct?",
        "thanks",
        "",
    ],
)
def test_another_matter_does_not_keep_it(text: str) -> None:
    assert "mcp:github" not in offered(text, ("mcp:github",))


def test_a_follow_up_with_evidence_for_another_source_goes_there() -> None:
    assert offered("make flashcards of that", ("mcp:github",)) == ("mcp:notebooklm",)


def test_a_source_that_is_gone_is_not_kept() -> None:
    assert (
        decide(
            GateIndex.build([NOTION], tables()), "do it again", Context((("mcp:github",),))
        ).offered
        == ()
    )


def test_what_counted_is_told() -> None:
    decision = explain(INDEX, "Which issues are still open in the website repo?")
    assert [row.source for row in decision.sources] == sorted(text.source for text in ALL)
    (row,) = (row for row in decision.sources if row.offered)
    assert (row.source, row.by) == ("mcp:github", "usage_card")
    assert {(item.word, item.origin) for item in row.evidence} >= {
        ("issue", "usage_card"),
        ("repo", "usage_card"),
    }
    assert all(item.weight > 0 for item in row.evidence)
    (nearness,) = (item for item in row.evidence if item.origin == "meaning")
    said = INDEX.vectors.pointing(
        read(INDEX, "Which issues are still open in the website repo?").meant
    )
    assert nearness.weight == near(said, INDEX.entries["mcp:github"].direction)


@given(REQUESTS, st.permutations(ALL))
def test_the_order_of_sources_does_not_matter(text: str, sources: list[SourceText]) -> None:
    assert explain(GateIndex.build(sources, tables()), text) == explain(INDEX, text)


@given(REQUESTS)
def test_the_decision_and_its_reasons_agree(text: str) -> None:
    assert decide(INDEX, text).offered == explain(INDEX, text).offered


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.sampled_from(ALL), st.sampled_from(["put", "drop", "change"]))), REQUESTS
)
def test_an_index_that_changed_is_one_that_was_built(
    steps: list[tuple[SourceText, str]], text: str
) -> None:
    index = GateIndex(tables())
    held: dict[str, SourceText] = {}
    for source, step in steps:
        decide(index, text)
        if step == "drop":
            index.remove(source.source)
            held.pop(source.source, None)
        else:
            new = source if step == "put" else dataclasses.replace(source, tools=source.tools[:1])
            index.replace(new)
            held[source.source] = new
    built = GateIndex.build(held.values(), tables())
    assert explain(index, text) == explain(built, text)
    assert (index.postings, index.names, index.starts, index.phrases) == (
        built.postings,
        built.names,
        built.starts,
        built.phrases,
    )


@given(st.text(max_size=300))
def test_any_text_is_decided(text: str) -> None:
    decision = explain(INDEX, text)
    assert isinstance(decision, Decision)
    assert all(0 <= row.score <= 1 for row in decision.sources)


@given(
    st.builds(
        SourceText,
        st.just("mcp:x"),
        st.text(max_size=20),
        st.text(max_size=80),
        st.lists(st.tuples(st.text(max_size=20), st.text(max_size=80)), max_size=3).map(tuple),
        st.lists(st.text(max_size=20), max_size=3).map(tuple),
    )
)
def test_any_source_goes_in_and_out(text: SourceText) -> None:
    index = GateIndex.build([text], tables())
    decide(index, f"{text.name} {text.description}")
    index.remove(text.source)
    assert not index.postings
    assert not index.names
    assert not index.starts
    assert not index.phrases


def test_other_languages_by_their_words() -> None:
    source = SourceText("mcp:cuisine", "cuisine", "", (("recettes", "Cherche des recettes"),))
    chinese = SourceText("mcp:tianqi", "tianqi", "", (("query", "查询城市天气预报"),))
    index = GateIndex.build([source, chinese], tables())
    assert decide(index, "trouve des recettes").offered == ("mcp:cuisine",)
    assert decide(index, "明天的天气预报").offered == ("mcp:tianqi",)


def test_words() -> None:
    assert (
        parts("createPullRequest") == parts("create_pull-request") == parts("create.pull request")
    )
    assert english("repositories") == english("repository")
    assert german("Termine".lower())[0] == german("termin")[0]
    assert is_german("wie wird das wetter".split())
    assert not is_german("how is the weather".split())
    assert pairs("天") == ["天"]


@given(st.text(st.characters(max_codepoint=127)))
def test_text_in_ascii_has_the_words_that_it_has_beside_other_text(text: str) -> None:
    assert tokens(text) == tokens(f"{text} é")[:-1]


def test_a_compound_needs_two_known_words() -> None:
    known = {"kalend", "geburtstag"}.__contains__
    assert split("geburtstagskalender", known) == ("geburtstag", "kalend")
    assert split("geburtstagsfeier", known) == ()


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("Sums up.\n\nArgs:\n    text: what", "Sums up."),
        ("See <a href='x'>this</a>", "See  this"),
        ("", ""),
    ],
)
def test_boilerplate_goes(text: str, rest: str) -> None:
    assert strip(text) == rest


def test_the_shipped_table() -> None:
    table = tables().frequencies
    assert table.documents > 100
    assert table.weight("nowhere-at-all") == 1.0
    assert 0 < table.weight(english("information")[0]) < table.weight(english("flashcards")[0])
    assert parse("2\nget\t2\t7\n") == Frequencies(2, {"get": 2}, {"get": 7})


def test_texts_are_told_apart() -> None:
    assert {text.source for text in (GITHUB, NOTEBOOKLM, WEATHER, LINEAR, NOTION, KALENDER)} == set(
        INDEX.entries
    )


@given(REQUESTS)
def test_what_a_source_has_alone_is_its_features_times_their_numbers(text: str) -> None:
    request = read(INDEX, text)
    said, called = gather(INDEX, request), calls(INDEX, request)
    hits = worth_a_look(said, called)
    for _ in range(2):  # What is kept of one word is the same as what was reckoned.
        for have, source in alone(INDEX, said, hits, called):
            card = called.cards.get(source, 0.0)
            values = features(INDEX, source, hits[source], said, card)
            assert have == pytest.approx(sum(map(mul, INDEX.numbers.alone, values)))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("the forecast for my rucksack", "rucksack"),
        ("rain or zithers in the forecast", "zither"),
        ("the forecast of the temperature in the city", ""),
    ],
)
def test_the_heaviest_word_that_a_source_does_not_have_counts(text: str, word: str) -> None:
    weight = missed("mcp:weather", gather(INDEX, read(INDEX, text)).heavy)
    assert weight == (INDEX.weight(english(word)[0]) if word else 0.0)


def test_what_is_near() -> None:
    words = tables().vectors
    recipe, dinner, invoice = (words.direction([term]) for term in ("recip", "dinner", "payment"))
    said = words.pointing(["recip", "recip"])
    assert near(said, recipe) == pytest.approx(1.0)
    assert near(said, dinner) > near(said, invoice)
    assert words.direction(["dinner", "recip"]) == words.direction(["recip", "dinner", "qqqq"])
    assert near(words.pointing(["qqqq"]), recipe) == near(said, ()) == 0.0
    assert NONE.direction(["dinner"]) == ()


def test_a_cut_table_of_vectors_is_refused() -> None:
    with pytest.raises(ValueError, match="cut"):
        parse_vectors(b"2 map chart\n" + bytes(3))
