"""From a call's arguments to the words of a command line, and the schema that says so; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from interlock.bus.settings import CliArgument, CliToolSettings

MAX_WORD: Final = 120 << 10
"""Bytes of one word; the kernel takes 128 KiB."""
MAX_WORDS: Final = 512
MAX_LINE: Final = 1 << 20
"""Bytes of all words together."""
_TYPES: Final[dict[str, dict[str, Any]]] = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "list": {"type": "array", "items": {"type": "string"}},
}


class ArgumentError(ValueError):
    """The arguments cannot become a command line; the message is one sentence for a model."""


def input_schema(settings: CliToolSettings) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments."""
    properties: dict[str, Any] = {}
    required = []
    if settings.subcommands:
        properties["subcommand"] = {"type": "string", "enum": list(settings.subcommands)}
        if settings.arguments:
            required.append("subcommand")
    for name, argument in settings.arguments.items():
        properties[name] = _property(argument)
        if argument.required:
            required.append(name)
    if not settings.arguments:
        what = "the words after the subcommand" if settings.subcommands else "all words"
        text = f"The arguments, {what}, each as one text; no shell reads them."
        properties["args"] = {**_TYPES["list"], "description": text}
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": required} if required else {})


def words(settings: CliToolSettings, given: dict[str, Any]) -> list[str]:
    """Return the words after the entry's own. Raises ArgumentError."""
    known = set(input_schema(settings)["properties"])
    for name in given:
        if name not in known:
            raise ArgumentError(f"{name[:40]!r} is no argument; known are {_listed(known)}.")
    if settings.arguments:
        line = [*_subcommand(settings, given.get("subcommand")), *_declared(settings, given)]
    else:
        line = _free(settings, given)
    size = 0
    for word in line:
        length = len(word.encode("utf-8", "surrogatepass"))
        size += length
        if "\0" in word or length > MAX_WORD or not _encodable(word):
            raise ArgumentError(
                "A word is too long, or holds a character that cannot be passed on."
            )
    if len(line) > MAX_WORDS or size > MAX_LINE:
        raise ArgumentError(
            f"There are more than {MAX_WORDS} words, or they are too long together."
        )
    return line


def _property(argument: CliArgument) -> dict[str, Any]:
    found = dict(_TYPES[argument.type])
    if argument.choices:
        found["enum"] = list(argument.choices)
    if argument.description:
        found["description"] = argument.description
    return found


def _free(settings: CliToolSettings, given: dict[str, Any]) -> list[str]:
    args = given.get("args", [])
    if not isinstance(args, list) or not all(isinstance(word, str) for word in args):
        raise ArgumentError('args is a list of texts, such as ["pr", "list"].')
    if not settings.subcommands:
        return list(args)
    if "subcommand" in given:
        return [*_subcommand(settings, given["subcommand"]), *args]
    if not any(args[: len(line.split())] == line.split() for line in settings.subcommands):
        raise ArgumentError(f"Only these may be run: {_listed(settings.subcommands)}.")
    return list(args)


def _subcommand(settings: CliToolSettings, given: Any) -> list[str]:
    if not settings.subcommands:
        return []
    allowed = {" ".join(line.split()) for line in settings.subcommands}
    wanted = " ".join(given.split()) if isinstance(given, str) else ""
    if wanted not in allowed:
        raise ArgumentError(f"subcommand is one of {_listed(settings.subcommands)}.")
    return wanted.split()


def _declared(settings: CliToolSettings, given: dict[str, Any]) -> Iterator[str]:
    """Yield options first, then what stands alone, each in the entry's order."""
    for name, argument in settings.arguments.items():
        if argument.required and given.get(name) is None:
            raise ArgumentError(f"The argument {name} is missing.")
    for alone in (False, True):
        for name, argument in settings.arguments.items():
            value = given.get(name)
            if value is None or bool(argument.option) == alone:
                continue
            for word in _values(name, argument, value):
                if argument.option:
                    yield argument.option
                if argument.type != "boolean":
                    yield word


def _values(name: str, argument: CliArgument, value: Any) -> Sequence[str]:
    match argument.type:
        case "boolean":
            if not isinstance(value, bool):
                raise ArgumentError(f"The argument {name} is true or false.")
            return [""] if value else []
        case "integer" | "number":
            whole = argument.type == "integer"
            number = isinstance(value, int if whole else (int, float))
            if not number or isinstance(value, bool):
                raise ArgumentError(
                    f"The argument {name} is {'a whole number' if whole else 'a number'}."
                )
            return [str(value)]
        case "list":
            if not isinstance(value, list):
                raise ArgumentError(f"The argument {name} is a list of texts.")
            return [_text(name, argument, one) for one in value]
        case _:
            return [_text(name, argument, value)]


def _text(name: str, argument: CliArgument, value: Any) -> str:
    if not isinstance(value, str):
        raise ArgumentError(f"The argument {name} is text.")
    if argument.choices and value not in argument.choices:
        raise ArgumentError(f"The argument {name} is one of {_listed(argument.choices)}.")
    if value.startswith("-"):
        # It would be an option, and which ones there are is for the entry to say.
        raise ArgumentError(f"The argument {name} cannot begin with a dash.")
    return value


def _encodable(word: str) -> bool:
    return not any(0xD800 <= ord(char) <= 0xDFFF for char in word)


def _listed(names: set[str] | Sequence[str]) -> str:
    shown = sorted(names) if isinstance(names, set) else names
    return ", ".join(shown) or "none"
