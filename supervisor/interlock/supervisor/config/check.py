"""Checks a table against a settings struct, key by key, and says in plain words what is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final, Protocol, TypeGuard

import msgspec
from msgspec import inspect

from interlock.bus.settings import SupervisorSettings
from interlock.supervisor.config.instead import below_policy, in_place_of_list, instead
from interlock.supervisor.config.lines import Path
from interlock.supervisor.config.meant import (
    TOO_MANY,
    forbidding_message,
    is_misspelt,
    may_forbid,
    misplaced_message,
    too_many,
    unknown_message,
)

Report = Callable[[str, Path, str, str], None]
"""Called with code, key path, message and fix for each finding."""

LONGEST: Final = 1e9
"""Seconds that any duration may have at most; also the bound of other plain numbers."""

_READABLE: Final = 10**15
_WORD: Final = re.compile(r"[A-Za-z]+(?:[ _-][A-Za-z]+)*")
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class _Tables(Protocol):
    """The type of a list of tables."""

    item_type: inspect.StructType


_KINDS: Final = ((str, "text"), (list, "a list"), (dict, "a table"))


class Checker:
    """Collects findings about tables; `report` gets each of them.

    `room` tells whether one more unknown key, at a path, is compared with those that are known.
    """

    def __init__(self, report: Report, room: Callable[[Path], bool]) -> None:
        self._report = report
        self._room = room
        self.errors = 0

    def struct(self, type_: type[msgspec.Struct], table: Any, path: Path) -> dict[str, Any]:
        """Return the keys of `table` that `type_` knows and whose values are right.

        Every other key is reported: unknown ones as a warning, wrong ones as an error, and so is
        an unknown one that may have been written to forbid something. Those for which there is no
        room are one error together.
        """
        if not isinstance(table, dict):
            self._wrong(path, "a table", table)
            return {}
        fields = _fields_of(type_)
        good: dict[str, Any] = {}
        more = 0
        for key, value in table.items():
            where = (*path, key)
            if key not in fields:
                if more or not self._room(where):
                    more += 1
                else:
                    self._unknown(type_, key, value, where)
                continue
            before = self.errors
            checked = self._value(fields[key], value, where)
            nested = isinstance(fields[key], inspect.StructType)  # Keeps its own right keys.
            if nested or self.errors == before:
                good[key] = checked
        if more:
            self.error("unread_key", path, too_many(more), TOO_MANY)
        return good

    def _unknown(self, type_: type[msgspec.Struct], key: str, value: Any, path: Path) -> None:
        fields = _fields_of(type_)
        if not may_forbid(type_, key, value):
            self._report("unknown_key", path, unknown_message(key, fields), "")
            return
        message, fix = misplaced_message(key), ""
        if type_ is SupervisorSettings:
            fix = below_policy(key)
        elif not is_misspelt(type_, key):
            fix = instead(type_, key, path)
        if not fix:
            message = forbidding_message(key, fields)
            fix = "write it as it is meant, or remove it"
        self.error("unread_key", path, message, fix)

    def error(self, code: str, path: Path, message: str, fix: str = "") -> None:
        """Report an error at `path`."""
        self.errors += 1
        self._report(code, path, message, fix)

    def _wrong(self, path: Path, expected: str, value: Any, *, number: bool = False) -> None:
        """Report a value; the number itself is told only where a number belongs: a PIN is none."""
        name = ".".join(path[1 if path[0] == "policy" else 2 :]) or path[-1]
        what = shown(value) if number else kind_of(value)
        fix = in_place_of_list(path, value)
        self.error("wrong_type", path, f"{name} must be {expected}, not {what}", fix)

    def _value(self, type_: inspect.Type, value: Any, path: Path) -> Any:
        """Return the value if it fits the type; report it otherwise."""
        if isinstance(type_, inspect.UnionType):
            present = [option for option in type_.types if not isinstance(option, inspect.NoneType)]
            if isinstance(value, dict):
                present = [one for one in present if isinstance(one, inspect.DictType)]
            if len(present) == 1:
                return self._value(present[0], value, path)
        if isinstance(type_, inspect.StructType):
            return self.struct(type_.cls, value, path)
        if _is_tables(type_) and isinstance(value, list):
            return [
                self._whole(type_.item_type.cls, item, (*path, str(n)))
                for n, item in enumerate(value, 1)
            ]
        if isinstance(type_, inspect.DictType) and isinstance(value, dict):
            told = is_name if isinstance(type_.value_type, inspect.StrType) else bool
            return {
                key: self._value(type_.value_type, item, (*path, key) if told(key) else path)
                for key, item in value.items()
            }
        if not _fits(type_, value):
            if isinstance(type_, inspect.LiteralType) and isinstance(value, str):
                name = ".".join(path[1 if path[0] == "policy" else 2 :]) or path[-1]
                message = f"{name} must be {describe(type_)}, not {_choice(value)}"
                self.error("wrong_type", path, message)
                return value
            number = isinstance(type_, (inspect.IntType, inspect.FloatType))
            self._wrong(path, describe(type_), value, number=number)
        return value

    def _whole(self, type_: type[msgspec.Struct], table: Any, path: Path) -> dict[str, Any]:
        """Return the keys of a table that has to be complete; report those that are missing."""
        good = self.struct(type_, table, path)
        if isinstance(table, dict):
            for field in msgspec.structs.fields(type_):
                if field.required and field.encode_name not in table:
                    self.error("missing_key", path, f"{field.encode_name} is missing")
        return good


@cache
def _fields_of(type_: type[msgspec.Struct]) -> dict[str, inspect.Type]:
    """Return the keys of a struct with their types; finding out takes milliseconds."""
    info = inspect.type_info(type_)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name: field.type for field in info.fields}


def shown(value: Any) -> str:
    """Return what a value is, and a number as it stands, without giving away text.

    >>> shown("hunter2"), shown(0)
    ('text', 'the number 0')
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return kind_of(value)
    if isinstance(value, int) and abs(value) >= _READABLE:
        return "so large a number"
    return f"the number {value:.12g}"


def kind_of(value: Any) -> str:
    """Return what a value is, without giving away text or a number that may be a secret.

    >>> kind_of("hunter2"), kind_of(48151623), kind_of(True)
    ('text', 'a number', 'true')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return "a number"
    for kind, words in _KINDS:
        if isinstance(value, kind):
            return words
    return "nothing" if value is None else "a date or time"


def describe(type_: inspect.Type) -> str:
    """Return what a value of that type looks like, in plain words."""
    match type_:
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType() | inspect.FloatType():
            return (
                "a whole number" if isinstance(type_, inspect.IntType) else "a number"
            ) + _range(type_)
        case inspect.StrType():
            return "text in quotes"
        case inspect.LiteralType():
            return "one of " + ", ".join(f'"{value}"' for value in type_.values)
        case inspect.VarTupleType(item_type=inspect.StructType()):
            return "a list of tables"
        case inspect.VarTupleType():
            return 'a list of texts, such as ["a", "b"]'
        case inspect.DictType() | inspect.StructType():
            return "a table"
        case inspect.UnionType() if any(isinstance(one, inspect.DictType) for one in type_.types):
            return 'a list of texts, such as ["a", "b"], or a table of such lists'
        case inspect.UnionType():
            return 'a number of bytes or a text such as "8MiB"'
        case _:
            return "something else"


def _choice(value: str) -> str:
    """Return a text that is none of some choices, unless it is nothing like a word: a secret."""
    return f'"{value}"' if _WORD.fullmatch(value) else "another text"


def _range(type_: inspect.IntType | inspect.FloatType) -> str:
    if type_.gt is not None:
        low = f" above {type_.gt:g}"
    elif type_.ge is not None:
        low = f" of at least {type_.ge:g}"
    else:
        low = ""
    return low + (f" and at most {type_.le:g}" if type_.le is not None else "")


def _is_tables(type_: inspect.Type) -> TypeGuard[_Tables]:
    return isinstance(type_, inspect.VarTupleType) and isinstance(
        type_.item_type, inspect.StructType
    )


def _fits(type_: inspect.Type, value: Any) -> bool:
    match type_:
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.IntType() | inspect.FloatType():
            return _fits_number(type_, value)
        case inspect.StrType():
            return isinstance(value, str)
        case inspect.LiteralType():
            return isinstance(value, str) and value in type_.values
        case inspect.VarTupleType():
            return isinstance(value, list) and all(_fits(type_.item_type, item) for item in value)
        case inspect.UnionType():
            return any(_fits(option, value) for option in type_.types)
        case _:
            return False


def _fits_number(type_: inspect.IntType | inspect.FloatType, value: Any) -> bool:
    whole = isinstance(type_, inspect.IntType)
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        return False
    if not -LONGEST <= value <= LONGEST:  # Also refuses nan.
        return False
    return (
        (type_.gt is None or value > type_.gt)
        and (type_.ge is None or value >= type_.ge)
        and (type_.le is None or value <= type_.le)
    )


def is_name(key: str) -> bool:
    """Whether a key of variables or headers can be told of: `TOKEN=abc` may hold a secret."""
    return _NAME.fullmatch(key) is not None


def texts(value: Any) -> Iterable[str]:
    """Yield every text inside a value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts(item)
