from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.bus.errors import (
    ApprovalClosedError,
    InterlockError,
    NotFoundError,
    OverloadedError,
)
from interlock.supervisor.policy.approvals import (
    ALWAYS,
    OF_CLIENT,
    REMEMBERED,
    WAITING,
    Answerer,
    Approvals,
    Asked,
    of_turn,
    summary,
)

PERSON = Answerer(name="api:01", role="person")


def asked(id_: str = "a", caller: str = "agent:main", **fields: Any) -> Asked:
    return Asked(
        id=id_,
        capability="mcp:x/y",
        worker="mcp:x",
        generation=1,
        caller=caller,
        arguments=b"{}",
        digest="d",
        **fields,
    )


def parked(seconds: float = 10.0, **fields: Any) -> Approvals:
    made = Approvals()
    made.park(asked(**fields), 0.0, seconds)
    return made


def test_a_person_decides_once() -> None:
    for approve, outcome in ((True, "approved"), (False, "approval_denied")):
        made = parked()
        found = made.answer("a", PERSON, approve, 9.9)
        assert (found.outcome, found.by) == (outcome, "api:01")
        assert made.waiting() == ()
        for again in (True, False):
            with pytest.raises(ApprovalClosedError, match="before"):
                made.answer("a", PERSON, again, 9.9)
        assert found.outcome == outcome
        assert made.expire("a", 20.0) is None


def test_an_answer_after_the_expiry_changes_nothing() -> None:
    made = parked()
    with pytest.raises(ApprovalClosedError, match="in time"):
        made.answer("a", PERSON, True, 10.0)
    (waiting,) = made.waiting()
    assert waiting.outcome == ""
    expired = made.expire("a", 10.0)
    assert expired is not None and expired.outcome == "approval_timeout"
    with pytest.raises(ApprovalClosedError, match="in time"):
        made.answer("a", PERSON, True, 11.0)


def test_nothing_expires_before_its_time() -> None:
    assert parked().expire("a", 9.99) is None
    assert parked().expire("b", 99.0) is None


@pytest.mark.parametrize(
    ("who", "code"),
    [
        (Answerer(name="api:02", role="app"), "denied"),
        (Answerer(name="agent:main", role="worker"), "denied"),
        (Answerer(name="agent:main", role="person"), "denied"),
    ],
)
def test_who_may_not_decide(who: Answerer, code: str) -> None:
    made = parked()
    for approve in (True, False):
        with pytest.raises(InterlockError) as caught:
            made.answer("a", who, approve, 1.0)
        assert caught.value.code == code
    assert made.answer("a", PERSON, True, 1.0).outcome == "approved"


def test_an_app_does_not_learn_what_exists() -> None:
    with pytest.raises(InterlockError) as caught:
        parked().answer("no", Answerer(name="api:02", role="app"), True, 0.0)
    assert caught.value.code == "denied"
    with pytest.raises(NotFoundError):
        parked().answer("no", PERSON, True, 0.0)


def test_withdrawn_by_turn() -> None:
    made = parked(turn="t1")
    made.park(asked("b", turn="t2"), 0.0, 10.0)
    (gone,) = made.withdraw(of_turn("t1"))
    assert (gone.asked.id, gone.outcome) == ("a", "withdrawn")
    assert [each.asked.id for each in made.waiting()] == ["b"]
    with pytest.raises(ApprovalClosedError, match="not wanted"):
        made.answer("a", PERSON, True, 1.0)


def test_settled_at_once_is_never_waiting() -> None:
    made = Approvals()
    assert made.settle(asked(), "approval_unavailable").outcome == "approval_unavailable"
    assert made.waiting() == ()
    with pytest.raises(ApprovalClosedError):
        made.answer("a", PERSON, True, 0.0)


def test_bounds() -> None:
    made = Approvals()
    for n in range(OF_CLIENT):
        made.park(asked(str(n), client="api:1"), 0.0, 10.0)
    with pytest.raises(OverloadedError, match="100 calls of the same client wait"):
        made.park(asked("more", client="api:1"), 0.0, 10.0)
    # Another client of the same agent has its own share, and so has who calls by itself.
    made.park(asked("theirs", client="api:2"), 0.0, 10.0)
    made.withdraw(lambda each: each.asked.id in ("0", "theirs"))
    made.park(asked("more", client="api:1"), 0.0, 10.0)
    for n in range(WAITING - OF_CLIENT):
        made.park(asked(f"o{n}", f"api:o{n}"), 0.0, 10.0)
    for n in range(ALWAYS):  # however many others wait
        made.park(asked(f"x{n}", "api:x"), 0.0, 10.0)
    with pytest.raises(OverloadedError, match="1004 calls wait"):
        made.park(asked("last", "api:x"), 0.0, 10.0)
    made.withdraw(lambda each: True)
    assert made.known(f"o{WAITING - OF_CLIENT - 1}") and not made.known("0")
    for n in range(REMEMBERED):
        made.settle(asked(f"s{n}"), "withdrawn")
    assert not made.known("more")


def test_the_sentence_about_what_waits() -> None:
    assert summary(()) == ""
    one = parked(agent="main")
    assert summary(one.waiting()) == "mcp:x/y of agent main waits for a person's answer."
    one.park(asked("b"), 0.0, 1.0)
    assert summary(one.waiting()).endswith(", and 1 more.")


STEP = st.tuples(
    st.sampled_from(("park", "approve", "deny", "expire", "withdraw", "own", "app")),
    st.sampled_from(("a", "b", "c")),
    st.integers(0, 12),
)


@settings(max_examples=200)
@given(st.lists(STEP, max_size=25))
def test_every_approval_ends_once_and_only_as_it_may(steps: list[tuple[str, str, int]]) -> None:
    made = Approvals()
    begun: dict[str, float] = {}
    ended: dict[str, str] = {}
    for what, id_, now in steps:
        if what == "park":
            if not made.known(id_):
                made.park(asked(id_, turn=id_), now, 5.0)
                begun[id_] = now
            continue
        if what == "expire":
            found = made.expire(id_, now)
        elif what == "withdraw":
            found = next(iter(made.withdraw(of_turn(id_))), None)
        else:
            role = "app" if what == "app" else "person"
            name = "agent:main" if what == "own" else "api:01"
            try:
                found = made.answer(id_, Answerer(name=name, role=role), what == "approve", now)
            except InterlockError:
                found = None
            else:
                assert what in ("approve", "deny") and now < begun[id_] + 5
        if found is not None:
            assert id_ not in ended
            ended[id_] = found.outcome
            assert found.outcome != "approval_timeout" or now >= begun[id_] + 5
    waiting = {each.asked.id for each in made.waiting()}
    assert waiting == set(begun) - set(ended)
