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
_SPACES: Final = re.compile(r"\s*")
_BETWEEN: Final = re.compile(r"[&\s]*")
_CAPABILITY: Final = re.compile(r"[A-Za-z]+:[^\s:/].*|.+__.+", re.DOTALL)
"""What can only be meant as a capability: `kind:source...` or a wire name."""
MAX_PARALLEL: Final = 1_000
"""Calls of one step; of more, most would be refused by servers with bounded queues."""
MAX_CALLS: Final = 10_000
"""Calls of one text; it is read in one piece, while the agent's other turns wait."""
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
    count = 0
    for number, line in enumerate(text.split("\n"), start=1):
        written = line.strip()
        if not written or written.startswith("#"):
            continue
        begin = _end(_BETWEEN, written, 0)
        if begin == len(written):
            joined = True
            continue
        if not (steps and (joined or begin)):
            steps.append([])
        before = len(steps[-1])
        joined = _line(written, begin, number, steps[-1])
        count += len(steps[-1]) - before
        if count > MAX_CALLS:
            raise BadTurnError(
                f"The text holds more than {MAX_CALLS} calls; send it as several turns."
            )
    if not steps:
        raise BadTurnError(
            "The text holds no tool call; write one a line, as in `mcp:git/git_status {...}`."
        )
    return tuple(tuple(step) for step in steps)


def _line(line: str, at: int, number: int, step: list[ParsedCall]) -> bool:
    """Add the calls of one line, from `at` on, to a step; returns whether `&` stands behind them.

    Goes through the line once, by index: what copied the rest of it for each call would take time
    with the square of its length.
    """
    behind = at
    while at < len(line):
        if len(step) == MAX_PARALLEL:
            raise BadTurnError(
                f"Line {number}: more than {MAX_PARALLEL} calls are joined by `&`; "
                "write some of them on lines of their own."
            )
        call, behind = _call(line, at, number)
        step.append(call)
        at = _end(_BETWEEN, line, behind)
    return behind < at


def _call(line: str, at: int, number: int) -> tuple[ParsedCall, int]:
    """Return the call that begins at `at`, and where what follows it begins."""
    end = _end(_NAME, line, at)
    name = line[at:end]
    begin = _end(_SPACES, line, end)
    if begin == len(line) or line[begin] == "&":
        return ParsedCall(name=name, line=number), begin
    if line[begin] not in "{[" and not _CAPABILITY.fullmatch(name):
        raise BadTurnError(
            f"Line {number} is no tool call: {_short(line, at)!r}. This agent has no model; its "
            "text is tool calls, one a line, as in `mcp:git/git_status {...}`."
        )
    end, problem = _object(line, begin)
    after = _end(_SPACES, line, end)
    if not problem and after < len(line) and line[after] != "&":
        problem = f"unexpected text after the arguments: {_short(line, after)!r}"
    if problem:
        # Where broken arguments end cannot be known, so nothing behind them may run.
        arguments = _utf8(line[begin:])
        return ParsedCall(name=name, arguments=arguments, problem=problem, line=number), len(line)
    return ParsedCall(name=name, arguments=_utf8(line[begin:end]), line=number), after


def _object(line: str, at: int) -> tuple[int, str]:
    """Return where the JSON object that begins at `at` ends, and what is wrong with it."""
    try:
        value, end = _DECODER.raw_decode(line, at)
    except json.JSONDecodeError as error:
        return at, f"the arguments are no JSON: {error.msg} at character {error.pos - at + 1}"
    except ValueError as error:
        return at, f"the arguments are no JSON: {error}"
    except RecursionError:
        return at, "the arguments are nested too deep"
    if not isinstance(value, dict):
        return at, "the arguments have to be a JSON object"
    try:
        line[at:end].encode()
    except UnicodeEncodeError:
        return at, "the arguments hold half of a surrogate pair"
    return end, ""


def _end(pattern: re.Pattern[str], line: str, at: int) -> int:
    """Return where what the pattern fits at `at` ends."""
    found = pattern.match(line, at)
    assert found is not None
    return found.end()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _short(line: str, at: int) -> str:
    """Return the beginning of the rest of a line."""
    rest = line[at : at + _SHOWN + 1]
    return rest if len(rest) <= _SHOWN else rest[: _SHOWN - 1] + "…"
