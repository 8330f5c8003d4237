"""Pure parser of the text that the `direct` driver takes: tool calls, one a line.

Specification with examples: docs/reference/direct.md.
"""

from __future__ import annotations

import json
import re
from typing import Final, NoReturn

import msgspec

from interlock.bus.errors import BadTurnError

_NAME: Final = re.compile(r"[^\s]+")
_CAPABILITY: Final = re.compile(r"[A-Za-z]+:[^\s:/].*|.+__.+", re.DOTALL)
"""What can only be meant as a capability: `kind:source...` or a wire name."""
MAX_PARALLEL: Final = 1_000
"""Calls of one step; of more, most would be refused by servers with bounded queues."""
_SHOWN: Final = 40


class ParsedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call as it was written; with `problem` set it cannot be made.

    `arguments` are the bytes of the JSON object exactly as written, or of what stands in its
    place.
    """

    name: str
    arguments: bytes = b"{}"
    problem: str = ""
    line: int = 1


Step = tuple[ParsedCall, ...]
"""Calls that run in parallel."""


def parse(text: str) -> tuple[Step, ...]:
    """Return the steps of a turn's text, in order.

    Raises BadTurnError if a line is no call at all, or if there is no call in the text: then
    nothing of it may run. Broken arguments are no reason to raise; they are the call's `problem`.

    >>> [[call.name for call in step] for step in parse("a:b {} & c:d\\ne:f")]
    [['a:b', 'c:d'], ['e:f']]
    """
    steps: list[list[ParsedCall]] = []
    joined = False
    for number, line in enumerate(text.split("\n"), start=1):
        rest = line.strip()
        if not rest or rest.startswith("#"):
            continue
        calls, leading, trailing = _line(rest, number)
        if calls:
            if steps and (joined or leading):
                steps[-1].extend(calls)
            else:
                steps.append(calls)
            joined = trailing
            if len(steps[-1]) > MAX_PARALLEL:
                raise BadTurnError(
                    f"Line {number}: more than {MAX_PARALLEL} calls are joined by `&`; "
                    "write some of them on lines of their own."
                )
        else:
            joined = True
    if not steps:
        raise BadTurnError(
            "The text holds no tool call; write one a line, as in `mcp:git/git_status {...}`."
        )
    return tuple(tuple(step) for step in steps)


def _line(rest: str, number: int) -> tuple[list[ParsedCall], bool, bool]:
    """Return the calls of one line, and whether `&` stands before and after them."""
    calls: list[ParsedCall] = []
    leading = rest.startswith("&")
    trailing = False
    while rest:
        if rest.startswith("&"):
            rest = rest[1:].lstrip()
            trailing = True
            continue
        call, rest = _call(rest, number)
        calls.append(call)
        trailing = False
    return calls, leading, trailing


def _call(text: str, number: int) -> tuple[ParsedCall, str]:
    """Return the call at the start of `text` and what follows it."""
    match = _NAME.match(text)
    assert match is not None
    name = match.group()
    rest = text[match.end() :].lstrip()
    if not rest or rest.startswith("&"):
        return ParsedCall(name=name, line=number), rest
    if not rest.startswith(("{", "[")) and not _CAPABILITY.fullmatch(name):
        raise BadTurnError(
            f"Line {number} is no tool call: {_short(text)!r}. This agent has no model; its text "
            "is tool calls, one a line, as in `mcp:git/git_status {...}`."
        )
    end, problem = _object(rest)
    after = rest[end:].lstrip()
    if not problem and after and not after.startswith("&"):
        problem = f"unexpected text after the arguments: {_short(after)!r}"
    if problem:
        # Where broken arguments end cannot be known, so nothing behind them may run.
        return ParsedCall(name=name, arguments=_utf8(rest), problem=problem, line=number), ""
    return ParsedCall(name=name, arguments=_utf8(rest[:end]), line=number), after


def _object(text: str) -> tuple[int, str]:
    """Return where the JSON object at the start of `text` ends, and what is wrong with it."""
    try:
        value, end = _DECODER.raw_decode(text)
    except json.JSONDecodeError as error:
        return 0, f"the arguments are no JSON: {error.msg} at character {error.pos + 1}"
    except ValueError as error:
        return 0, f"the arguments are no JSON: {error}"
    except RecursionError:
        return 0, "the arguments are nested too deep"
    if not isinstance(value, dict):
        return 0, "the arguments have to be a JSON object"
    try:
        text[:end].encode()
    except UnicodeEncodeError:
        return 0, "the arguments hold half of a surrogate pair"
    return end, ""


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
