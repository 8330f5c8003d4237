"""URI templates (RFC 6570): which variables one has, and the URI that values make of it; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

MAX_URI: Final = 8_192
"""Characters of an expanded template."""
_PART: Final = re.compile(r"\{([^{}]*)\}")
_EXPRESSION: Final = re.compile(r"([+#./;?&]?)([^,]+(?:,[^,]+)*)")
_VARIABLE: Final = re.compile(r"((?:[A-Za-z0-9_.-]|%[0-9A-Fa-f]{2})+)(\*|:[1-9][0-9]{0,3})?")
_RESERVED: Final = ":/?#[]@!$&'()*+,;="


class TemplateError(ValueError):
    """A template that is none, or values that do not fit it; in words for a person or model."""


class _Operator(NamedTuple):
    first: str
    between: str
    named: bool
    safe: str


_OPERATORS: Final = {
    "": _Operator("", ",", False, ""),
    "+": _Operator("", ",", False, _RESERVED),
    "#": _Operator("#", ",", False, _RESERVED),
    ".": _Operator(".", ".", False, ""),
    "/": _Operator("/", "/", False, ""),
    ";": _Operator(";", ";", True, ""),
    "?": _Operator("?", "&", True, ""),
    "&": _Operator("&", "&", True, ""),
}


def variables(template: str) -> list[str]:
    """Return the names of a template's variables, each once, in order. Raises TemplateError.

    >>> variables("file:///{+path}{?line,column}")
    ['path', 'line', 'column']
    """
    outside = _PART.sub("", template)
    if "{" in outside or "}" in outside:
        raise TemplateError("a brace has no partner")
    names = [name for part in _PART.findall(template) for _, name, _ in _specs(part)]
    return list(dict.fromkeys(names))


def expand(template: str, values: Mapping[str, Any]) -> str:
    """Return the URI; variables without a value are left out. Raises TemplateError.

    >>> expand("file:///{path}{?q}", {"path": "a b/c", "q": "x"})
    'file:///a%20b%2Fc?q=x'
    >>> expand("file:///{+path}", {"path": "a b/c"})
    'file:///a%20b/c'
    """
    known = variables(template)
    for name in values:
        if name not in known:
            raise TemplateError(f"{name[:40]!r} is no argument; known are {', '.join(known)}")
    uri = _PART.sub(lambda part: _expression(part[1], values), template)
    if len(uri) > MAX_URI:
        raise TemplateError("the arguments are too long")
    return uri


def _specs(part: str) -> Iterator[tuple[_Operator, str, str]]:
    found = _EXPRESSION.fullmatch(part)
    if found is None:
        raise TemplateError(f"{{{part[:40]}}} is no expression")
    for spec in found[2].split(","):
        variable = _VARIABLE.fullmatch(spec)
        if variable is None:
            raise TemplateError(f"{spec[:40]!r} is no variable")
        yield _OPERATORS[found[1]], variable[1], variable[2] or ""


def _expression(part: str, values: Mapping[str, Any]) -> str:
    texts = []
    operator = _OPERATORS[""]
    for operator, name, modifier in _specs(part):
        value = values.get(name)
        if value is None or value == []:
            continue
        several = value if isinstance(value, list) else [value]
        written = [_written(one, modifier, operator, name) for one in several]
        if modifier == "*":
            texts += [_named(operator, name, one) for one in written]
        else:
            texts.append(_named(operator, name, ",".join(written)))
    return operator.first + operator.between.join(texts) if texts else ""


def _written(value: Any, modifier: str, operator: _Operator, name: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise TemplateError(f"{name} must be text")
    text = str(value)
    if modifier.startswith(":"):
        text = text[: int(modifier[1:])]
    return quote(text, safe="-._~" + operator.safe, errors="replace")


def _named(operator: _Operator, name: str, text: str) -> str:
    if not operator.named:
        return text
    return name if operator.between == ";" and not text else f"{name}={text}"
