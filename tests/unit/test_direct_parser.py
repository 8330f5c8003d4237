from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.bus.errors import BadTurnError
from interlock.workers.agent.directparse import MAX_CALLS, MAX_PARALLEL, parse


def shape(text: str) -> list[list[tuple[str, object]]]:
    return [[(c.name, json.loads(c.arguments)) for c in step] for step in parse(text)]


def test_each_line_is_a_step() -> None:
    assert shape('mcp:a/x {"n": 1}\n\n# note\nmcp:a/y') == [
        [("mcp:a/x", {"n": 1})],
        [("mcp:a/y", {})],
    ]


@pytest.mark.parametrize(
    "text",
    [
        'a:b/x {"n": "& {"} & c:d/y {}',
        'a:b/x {"n": "& {"}&c:d/y',
        'a:b/x {"n": "& {"} &\nc:d/y',
        'a:b/x {"n": "& {"}\n& c:d/y {}',
        'a:b/x {"n": "& {"}\n&\nc:d/y',
        '& a:b/x {"n": "& {"} & &\n\n# between\nc:d/y &',
    ],
)
def test_ampersand_joins_calls_into_one_step(text: str) -> None:
    assert shape(text) == [[("a:b/x", {"n": "& {"}), ("c:d/y", {})]]


def test_a_bare_name_may_contain_an_ampersand() -> None:
    assert shape("run&go & run") == [[("run&go", {}), ("run", {})]]


def test_arguments_are_kept_as_written() -> None:
    (call,) = parse('a:b/x  {"n":1.50,\t"n":2, "big": 12345678901234567890123}  ')[0]
    assert call.arguments == b'{"n":1.50,\t"n":2, "big": 12345678901234567890123}'


@pytest.mark.parametrize(
    ("rest", "problem"),
    [
        ('{"n": ', "no JSON"),
        ("[1]", "JSON object"),
        ("{} and more", "unexpected text"),
        ('{"n": NaN}', "NaN is no JSON value"),
        ("not json", "no JSON"),
        ('{"n":' * 200_000, "nested too deep"),
    ],
)
def test_broken_arguments_are_a_problem_of_that_call(rest: str, problem: str) -> None:
    steps = parse(f"a:b/x {rest} & c:d/y {{}}\ne:f/z")
    assert [[c.name for c in step] for step in steps] == [["a:b/x"], ["e:f/z"]]
    assert problem in steps[0][0].problem
    assert not steps[1][0].problem


@pytest.mark.parametrize("text", ["", " \n\n", "# only a note", "&"])
def test_no_call_at_all_is_a_bad_turn(text: str) -> None:
    with pytest.raises(BadTurnError, match="no tool call"):
        parse(text)


def test_plain_words_are_a_bad_turn_and_name_the_line() -> None:
    with pytest.raises(BadTurnError, match="Line 2 is no tool call: 'What changed"):
        parse("a:b/x {}\nWhat changed in this repository, please tell me all of it?")


def test_a_step_has_a_bound() -> None:
    calls = ["a:b {}"] * MAX_PARALLEL
    assert len(parse(" & ".join(calls))[0]) == MAX_PARALLEL
    with pytest.raises(BadTurnError, match="Line 3: more than 1000 calls"):
        parse("a:b\n" + " & ".join(calls) + " &\na:b")
    assert len(parse("\n".join(calls * 2))) == 2 * MAX_PARALLEL


def test_a_text_has_a_bound() -> None:
    assert len(parse("a:b\n" * MAX_CALLS)) == MAX_CALLS
    with pytest.raises(BadTurnError, match="more than 10000 calls"):
        parse("a:b\n" * (MAX_CALLS + 1))


@pytest.mark.parametrize(
    "text",
    [
        " & ".join(["a:b"] * 170_000),
        "a:b " + "&" * 1_000_000,
        "a:b " + "& " * 500_000,
        "&" * 1_000_000 + "a:b",
        "a:b\n" + "&\n" * 200_000,
        "a:b\n" * 250_000,
        "a:b {\n" * 160_000,
        " & ".join(["a:b {}"] * MAX_PARALLEL) + " " * 400_000 + "& a:b",
    ],
    ids=lambda text: f"{text[:8]!r}...{text[-8:]!r}",
)
def test_no_text_is_read_with_the_square_of_its_length(text: str) -> None:
    """All of 1 MB; each took 20 s and more, or holds so many calls, with the agent's pings."""
    begun = time.process_time()
    try:
        assert sum(map(len, parse(text))) <= MAX_CALLS
    except BadTurnError as error:
        assert "more than" in error.message
    assert time.process_time() - begun < 5


NAMES = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20).map(
    lambda text: "mcp:s/" + text
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
CALLS = st.tuples(NAMES, st.dictionaries(st.text(), VALUES, max_size=3))


@given(
    st.lists(st.lists(CALLS, min_size=1, max_size=3), min_size=1, max_size=4),
    st.sampled_from([" & ", " &\n", "\n& ", "\n&\n", " &\n\n"]),
    st.booleans(),
)
def test_what_is_written_is_read_back(
    steps: list[list[tuple[str, object]]], joiner: str, ascii_only: bool
) -> None:
    lines = [
        joiner.join(f"{name} {json.dumps(args, ensure_ascii=ascii_only)}" for name, args in step)
        for step in steps
    ]
    assert shape("\n".join(lines)) == steps


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        steps = parse(text)
    except BadTurnError as error:
        assert error.message
    else:
        assert all(step for step in steps)
        whole = [call for step in steps for call in step if not call.problem]
        assert all(isinstance(json.loads(call.arguments), dict) for call in whole)


@given(st.text(alphabet='ab:/_&{}[]",\\ \n#1'))
def test_any_mixture_of_its_own_characters_is_parsed_or_refused(text: str) -> None:
    test_any_text_is_parsed_or_refused.hypothesis.inner_test(text)  # type: ignore[attr-defined]
