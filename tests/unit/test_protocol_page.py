"""docs/reference/protocol.md says what the code does: every message, field, default and code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from protocol_page import RECORDS, record, rows

from interlock.bus import errors, events, limits, messages

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/protocol.md").read_text("utf-8")
REQUEST = ("id", "key")
STAMP = ("epoch", "seq", "time")

PLANES: list[tuple[str, Any, tuple[str, ...], set[str]]] = [
    ("### Requests", messages.ApiRequest, REQUEST, set()),
    ("### Answers", messages.ApiAnswer, (), set()),
    ("### From the caller", messages.DataUp, (), set()),
    ("### To the caller", messages.DataDown, (), set()),
    ("### From a worker", messages.ControlUp, (), set()),
    # One message of two planes; it is described where clients look for it.
    ("### To a worker", messages.ControlDown, (), {"gone"}),
    ("### Topics", events.AnyEvent, STAMP, set()),
    ("### Turn items", events.AnyItem, (), set()),
]


def section(heading: str) -> str:
    """The text below a heading, up to the next one that is as high."""
    level = heading.split(" ")[0]
    start = PAGE.index(f"\n{heading}\n") + len(heading) + 2
    end = re.search(rf"^#{{2,{len(level)}}} ", PAGE[start:], re.MULTILINE)
    return PAGE[start : start + end.start()] if end else PAGE[start:]


def described(text: str) -> dict[str, str]:
    """The parts of a section by the message that they describe."""
    parts = re.split(r"^#### `([^`]+)`$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def fields(text: str) -> list[tuple[str, str, str]]:
    """The last table with defaults in a part of the page, without the meanings."""
    tables = text.split("| field | type | default | meaning |\n|---|---|---|---|\n")
    if len(tables) == 1:
        return []
    found = []
    for line in tables[-1].split("\n\n")[0].splitlines():
        name, kind, default, meaning = (cell.strip() for cell in line.strip("|").split("|", 3))
        assert meaning, f"{name} has no meaning"
        found.append((name.strip("`"), kind, default))
    return found


def tag(kind: type[msgspec.Struct]) -> str:
    return str(kind.__struct_config__.tag)


@pytest.mark.parametrize(
    ("heading", "union", "skip", "elsewhere"), PLANES, ids=[plane[0] for plane in PLANES]
)
def test_every_message_is_described_and_no_other(
    heading: str, union: Any, skip: tuple[str, ...], elsewhere: set[str]
) -> None:
    parts = described(section(heading))
    kinds = {tag(kind): kind for kind in get_args(union)}
    assert set(parts) == set(kinds) - elsewhere
    for name, text in parts.items():
        assert fields(text) == rows(kinds[name], skip), name


def test_common_fields() -> None:
    assert fields(section("## Api plane").split("### ")[0]) == rows(messages.Request)
    stamp = [(name, kind) for name, kind, _ in rows(events.Event)]
    common = fields(section("## Events plane").split("### ")[0])
    assert [(name, kind) for name, kind, _ in common] == [("topic", "string"), *stamp]


@pytest.mark.parametrize("name", RECORDS)
def test_records(name: str) -> None:
    assert fields(section(f"### {name}")) == rows(record(name))


def codes(heading: str) -> set[str]:
    return set(re.findall(r"^\| `([a-z_]+)` \|", section(heading), re.MULTILINE))


def test_outcomes() -> None:
    assert codes("### Outcomes") == set(errors.OUTCOMES)


def test_error_codes() -> None:
    classes = [errors.InterlockError]
    for kind in classes:
        classes.extend(kind.__subclasses__())
    own = {kind.code for kind in classes if kind.__module__ == errors.__name__}
    listed = codes("### Error codes")
    assert own <= listed | set(errors.OUTCOMES)
    # Codes without a class of their own are given where they are raised.
    written = "".join(
        path.read_text("utf-8")
        for package in ("bus", "supervisor", "workers")
        for path in (ROOT / package).rglob("*.py")
    )
    assert all(f'code="{code}"' in written for code in listed - own)


def test_codes_of_turns() -> None:
    written = "".join(
        path.read_text("utf-8")
        for folder in ("supervisor/interlock/supervisor/events", "workers/interlock/workers/agent")
        for path in (ROOT / folder).glob("*.py")
    )
    assert all(f'"{code}"' in written for code in codes("### Codes of turns"))
    failed = set(re.findall(r'TurnFailed\(\s*code="([a-z_]+)"', written))
    assert failed <= codes("### Codes of turns")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("protocol version 1", messages.PROTOCOL == 1),
        ("64 MiB for one frame", messages.MAX_MESSAGE == 64 << 20),
        ("1 MiB for one header", messages.MAX_HEADER == 1 << 20),
        ("200 levels of nesting", messages.MAX_NESTING == 200),
        ("1 MiB and 50,000 values", (limits.MAX_ARGUMENTS, limits.MAX_VALUES) == (1 << 20, 50_000)),
        ("more than 256 KiB", messages.CHUNK == 256 << 10),
        ("The target sends 8 chunks", messages.CHUNK_WINDOW == 8),
        ("at most 60", messages.TICKET_LIFE == 60.0),
        ("cut above 16 KiB", messages.RESULT_INLINE == 16 << 10),
    ],
)
def test_limits(text: str, value: bool) -> None:
    assert text in PAGE
    assert value


def test_links_lead_somewhere() -> None:
    headings = re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-") for each in headings}
    links = set(re.findall(r"\]\(#([^)]+)\)", PAGE))
    assert links <= anchors
