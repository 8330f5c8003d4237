"""References to secrets: the only module that turns `${...}` into values, and hides the values.

Forms: `${NAME}` (environment), `${NAME:-default}` (the default where NAME is unset or empty) and
`${keyring:name}` (system keyring, service "interlock"). `$$` stands for one dollar sign. A keyring
value that is too long for its backend is stored in parts: the entry then reads `chunks:N` and the
parts are `name#0` to `name#N-1`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Final

from interlock.bus.references import (
    KEYRING,
    KEYRING_SERVICE,
    foreign,
    keyring_fault,
    references,
    replaced,
)
from interlock.bus.searchpath import set_before
from interlock.workers.failure import WorkerError

KEYRING_TIMEOUT: Final = 5.0
"""Seconds that the keyring may take for one value; a locked one answers after about 2.5."""
MAX_CHUNKS: Final = 64
OWN_PREFIX: Final = "INTERLOCK_"
"""Variables of Interlock itself; no program below a worker gets one, whatever its entry names."""
MASK: Final = "[secret]"
MIN_MASKED: Final = 6
"""Shorter values would hide ordinary text."""
CLIP_ROOM: Final = 8
"""A text is looked at for so many times the length to which it is cut: masks are short."""
PUBLIC_VARIABLES: Final = frozenset(
    "PATH HOME USER LOGNAME SHELL LANG TMPDIR TERM TZ PWD HOSTNAME DISPLAY XDG_RUNTIME_DIR".split()
)
"""Variables whose values are no secret, so that naming one does not hide them in logs."""

_CHUNKED = re.compile(r"chunks:([0-9]{1,3})")
_SECRET_NAME = re.compile(r"key|token|secret|passw|auth|credential|cookie", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"://[^/@\s:]*:([^/@\s]+)@")
_RANDOM = re.compile(r"(?=[^0-9]*[0-9])(?=[^a-z]*[a-z])[a-z0-9_+=-]{20,}", re.IGNORECASE)
"""Long, of letters and digits, no path and no words with spaces: what keys look like."""
_SECRET_VARIABLE = re.compile(
    _SECRET_NAME.pattern + r"|pass|pwd|cred|bearer|private|jwt|salt|(?:^|_)pa[ts](?:_|$)",
    re.IGNORECASE,
)
_WORDS = r"(?:[A-Z][^\W\d_A-Z]{1,15}|[^\W\d_A-Z]{2,15}|[A-Z]{2,15})"
_PLAIN = re.compile(rf"(?!.{{25}}){_WORDS}{{1,3}}[0-9]{{0,4}}|[0-9]{{1,4}}|[a-zA-Z]|")
"""What stands between two marks in a name: words, written together or not, or a number."""
_BETWEEN = re.compile(r"[-_. /:]")


class _Forms:
    """Values in all their spellings, and the pattern that finds them."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.longest = 0
        self._pattern: re.Pattern[str] | None = None

    def add(self, value: str) -> None:
        for part in {value, *value.splitlines()}:
            if len(part) >= MIN_MASKED:
                self.found |= _spellings(part)
        self._pattern = None

    @property
    def pattern(self) -> re.Pattern[str] | None:
        if self._pattern is None and self.found:
            longest_first = sorted(self.found, key=lambda form: (-len(form), form))
            self.longest = len(longest_first[0])
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))
        return self._pattern


class Masks:
    """The values that must not appear in any text of this process; one per worker.

    Some of them are secret for sure; others are only values that an entry refers to, such as the
    name of a database. Texts hide both. Names, by which things are called, hide the first only:
    a tool `list_orders` is not left out because a database is called `orders`.
    """

    def __init__(self) -> None:
        self._forms = _Forms()
        self._secret = _Forms()

    @property
    def any(self) -> bool:
        """Whether there is anything to hide."""
        return bool(self._forms.found)

    def add(self, value: str, in_names: bool = True) -> None:
        """Hide `value` from now on, also as JSON, Python or URL text, and line by line.

        `in_names`: it is secret for sure, so names hide it, too.
        """
        self._forms.add(value)
        if in_names:
            self._secret.add(value)

    def mask(self, text: str) -> str:
        """Return `text` with every hidden value replaced.

        >>> masks = Masks()
        >>> masks.add("correct horse")
        >>> masks.mask("password=correct horse")
        'password=[secret]'
        """
        pattern = self._forms.pattern
        return text if pattern is None else pattern.sub(MASK, text)

    def mask_name(self, name: str) -> str:
        """Return a name with every value replaced that is secret for sure.

        >>> masks = Masks()
        >>> masks.add("orders", in_names=False)
        >>> masks.mask_name("list_orders"), masks.mask("list_orders")
        ('list_orders', 'list_[secret]')
        """
        pattern = self._secret.pattern
        return name if pattern is None else pattern.sub(MASK, name)

    def clip(self, text: str, limit: int) -> str:
        """Return the beginning of the masked text, `limit` characters at most.

        Whoever cuts first and masks later leaves the beginning of a value at the cut.

        >>> masks = Masks()
        >>> masks.add("correct horse")
        >>> masks.clip("a correct horse", 8)
        'a [secre'
        """
        pattern, bound = self._forms.pattern, limit * CLIP_ROOM
        if pattern is None:
            return text[:limit]
        parts, place = [], 0
        for found in pattern.finditer(text[: bound + self._forms.longest]):
            if found.start() >= bound:
                break
            parts += [text[place : found.start()], MASK]
            place = found.end()
        return "".join([*parts, text[place:bound]])[:limit]


def _spellings(value: str) -> set[str]:
    """Return the ways in which programs write a text."""
    inner = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    nested = {json.dumps(text)[1:-1] for text in inner}
    shown = {repr(value)[1:-1], ascii(value)[1:-1]}
    # A variable may hold bytes that are no UTF-8; output with them is read with replacements.
    raw = value.encode("utf-8", "surrogateescape")
    shown.add(raw.decode("utf-8", "replace"))
    return {value, urllib.parse.quote(raw), urllib.parse.quote(raw, safe="")} | (
        inner | nested | shown
    )


async def resolve(value: str, environ: Mapping[str, str], masks: Masks, where: str) -> str:
    """Return `value` with every reference replaced, and hide what came from outside.

    `where` names the setting for the error text. Raises WorkerError(secret_unresolved).
    """
    found: dict[str, str] = {}
    for reference in references(value):
        if reference not in found:
            found[reference] = await _lookup(reference, environ, masks, where)
    return replaced(value, found)


async def resolve_entries(
    entries: Mapping[str, str], environ: Mapping[str, str], masks: Masks, where: str
) -> dict[str, str]:
    """Resolve a table of settings such as `env`; an empty value takes the variable of that name.

    Literal values are hidden as well where the key says that they are secret, or they look so.
    """
    resolved: dict[str, str] = {}
    for key, value in entries.items():
        setting = f"{where}.{key}"
        resolved[key] = await resolve(value or f"${{{key}}}", environ, masks, setting)
        if _SECRET_NAME.search(key) or (references(value) and key not in PUBLIC_VARIABLES):
            if not _only_public(value):
                masks.add(resolved[key], in_names=_is_secret(key, resolved[key]))
        hide_literals([resolved[key]], masks)
    return resolved


def hide_literals(values: Iterable[str], masks: Masks) -> None:
    """Hide what in these values looks like a secret although nothing says that it is one.

    That is the password of an address, a long text of letters and digits, and what follows an
    option such as `--api-key`.
    """
    option = ""
    for value in values:
        for password in _URL_PASSWORD.findall(value):
            masks.add(password)
            masks.add(urllib.parse.unquote(password))
        name, equals, rest = value.partition("=") if value.startswith("-") else ("", "", value)
        if _RANDOM.fullmatch(rest) or _SECRET_NAME.search(name if equals else option):
            masks.add(rest)
        option = name if name and not equals else ""


def variables(values: Iterable[str]) -> set[str]:
    """Return the names of the environment variables that `values` refer to."""
    names = (reference for value in values for reference in references(value))
    return {name.partition(":-")[0] for name in names if not name.startswith(KEYRING)}


def _is_secret(name: str, value: str) -> bool:
    """Whether a variable's value is secret for sure: by its name, or as it is made of no words."""
    return _SECRET_VARIABLE.search(name) is not None or not _is_plain(value)


def _is_plain(value: str) -> bool:
    """Whether a text is words, each with a number at most, as names of things are.

    >>> [_is_plain(text) for text in ("orders", "eu-west-1", "MyShop2", "k7Qz_9dLx", "x" * 40)]
    [True, True, True, False, False]
    """
    return all(_PLAIN.fullmatch(part) for part in _BETWEEN.split(value))


def _only_public(value: str) -> bool:
    names = references(value)
    return bool(names) and all(name.partition(":-")[0] in PUBLIC_VARIABLES for name in names)


async def _lookup(reference: str, environ: Mapping[str, str], masks: Masks, where: str) -> str:
    kind, colon, name = reference.partition(":")
    if kind == "keyring" and colon and not name.startswith("-"):
        value = await _from_keyring(name, where)
        masks.add(value)
        return value
    variable, has_default, default = reference.partition(":-")
    found = environ.get(variable, "")
    if found:
        if variable not in PUBLIC_VARIABLES:
            masks.add(found, in_names=_is_secret(variable, found))
        return found
    if has_default:
        return default
    if variable in environ:
        return ""
    if not variable.strip():
        fix = "Write the name of a variable between the braces, or take them out."
        raise _unresolved(reference, where, "it names no variable", fix)
    why, fix = foreign(reference) or (
        "that variable is not set",
        f"{set_before(variable)}.",
    )
    raise _unresolved(reference, where, why, fix)


def _unresolved(reference: str, where: str, why: str, fix: str) -> WorkerError:
    return WorkerError(
        "secret_unresolved",
        f"${{{reference}}} in {where} cannot be resolved: {why}",
        fix=fix,
        permanent=True,
    )


async def _from_keyring(name: str, where: str) -> str:
    reference = f"keyring:{name}"
    again = "Unlock the system keyring, then `interlock start` the worker."
    task = asyncio.create_task(asyncio.to_thread(_read_keyring, name))
    done, _ = await asyncio.wait({task}, timeout=KEYRING_TIMEOUT)
    if not done:
        task.cancel()
        why = f"the keyring did not answer within {KEYRING_TIMEOUT:g} s"
        raise _unresolved(reference, where, why, again)
    problem = task.exception()
    if isinstance(problem, WorkerError):
        raise _unresolved(reference, where, problem.reason, problem.fix)
    if problem is not None:
        # Backends raise whatever their platform raises; its text may quote the value.
        why = f"the keyring cannot be read ({type(problem).__name__})"
        raise _unresolved(reference, where, why, again)
    value = task.result()
    if value is None:
        fix = f"Store it: `keyring set {KEYRING_SERVICE} {shlex.quote(name)}`."
        why = f"the keyring has no entry of service {KEYRING_SERVICE} and user name {name}"
        raise _unresolved(reference, where, why, fix)
    return value


def _read_keyring(name: str) -> str | None:
    import keyring  # imported where it is needed: it costs 60 ms

    backend = keyring.get_keyring()
    path = f"{type(backend).__module__}.{type(backend).__qualname__}"
    fault = keyring_fault(path)
    if fault is not None:
        raise WorkerError("secret_unresolved", fault[0], fix=fault[1])
    value = keyring.get_password(KEYRING_SERVICE, name)
    chunked = _CHUNKED.fullmatch(value) if value else None
    if chunked is None:
        return value
    count = int(chunked[1])
    parts = [keyring.get_password(KEYRING_SERVICE, f"{name}#{n}") for n in range(count)]
    if count > MAX_CHUNKS or None in parts:
        raise WorkerError(
            "secret_unresolved",
            "a part of the stored value is missing",
            fix="Store the value again.",
        )
    return "".join(part for part in parts if part)


def environment() -> dict[str, str]:
    """Return this process's environment without the variables that are Interlock's own."""
    return {key: value for key, value in os.environ.items() if not key.startswith(OWN_PREFIX)}
