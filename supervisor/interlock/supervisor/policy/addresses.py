"""What a path, or an address, says once its detours and decorations are taken away; pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

from interlock.supervisor.policy.hosts import as_host

_FILE: Final = "file://"
_BLANK: Final = "".join(chr(n) for n in range(0x3001) if n <= 0x20 or chr(n).isspace()) + "\ufeff"
"""Characters that programs ignore around an address."""
_HEAD: Final = 200
"""Characters in which the scheme of an address ends."""
_SCHEME: Final = re.compile(
    r"[a-z][a-z0-9+.-]{1,40}(?=:[/\\])|(?:file|https?|wss?|ftp)(?=:)", re.IGNORECASE
)
"""Programs take addresses of the usual schemes without any slash, too."""
_AROUND: Final = re.compile(r"[a-z][a-z0-9+._-]{0,40}:", re.IGNORECASE)
"""What may stand before an address that a program opens: `URL:`, `view-source:`, `jar:`."""
_DEEP: Final = 4
"""Addresses in one another that are read."""
_PARTS: Final = re.compile(r"([^/?#]*)([^?#]*)(.*)", re.DOTALL)
_PARTS_END: Final = re.compile(r"[?#]")
_PORTS: Final = {"http": "80", "ws": "80", "https": "443", "wss": "443", "ftp": "21"}


def without_detours(text: str) -> str:
    """A text as a path, or an address, without detours.

    >>> without_detours("file:///tmp/../etc//passwd"), without_detours("https://a.example/b/../c")
    ('/etc/passwd', 'https://a.example/c')
    """
    scheme, colon, rest = text.strip().removeprefix(_FILE).replace("\\", "/").partition("://")
    if colon:
        return f"{scheme}://{posixpath.normpath(rest)}"
    path = posixpath.normpath(scheme)
    return "/" + path.lstrip("/") if path.startswith("//") else path


def is_address(text: str) -> bool:
    """Whether a program may take the text for an address, in which `%41` means `A`.

    >>> is_address("file:x"), is_address(" " * 300 + "https:x"), is_address("C:/x")
    (True, True, False)
    """
    return next(_addresses(text), None) is not None


def unescaped(text: str) -> str:
    """The text with its escapes read once.

    >>> unescaped("file:///%65tc/%70asswd")
    'file:///etc/passwd'
    """
    return unquote(text)


def meanings(text: str, *, inside: bool = True) -> frozenset[str]:
    """What an address means in the form that people write; nothing for a text that is none.

    Of a file its path, of all the address without host or user, usual port, needless characters,
    and with its host as programs look it up. Where programs differ, what each of them reads. If
    `inside`, an address in another counts: `view-source:https://a.example`, `git+https://`.

    >>> meanings("file://localhost/etc/passwd") >= {"/etc/passwd"}
    True
    >>> sorted(meanings("https:/me@a.example.:443?x"))
    ['https://a.example/?x']
    >>> "https://a.example/x" in meanings("<URL:https:a\u3002EXAMPLE/x>")
    True
    """
    found: set[str] = set()
    for address in _addresses(text, _DEEP if inside else 1):
        scheme, _, rest = address.partition(":")
        schemes = {scheme, scheme.rpartition("+")[2]} if inside else {scheme}
        # A browser takes a backslash for a slash, other programs for a letter of the user's name.
        for read in {rest, rest.replace("\\", "/")}:
            for each in schemes:
                found |= _paths(read) if each.lower() == "file" else _places(each, read)
    return frozenset(found)


def _addresses(text: str, deep: int = _DEEP) -> Iterator[str]:
    """The text as an address, if it is one, and each that stands in it; without decorations."""
    for char in "\t\r\n":  # programs leave them out wherever they stand
        text = text.replace(char, "")
    for depth in range(deep):
        text = text.strip(_BLANK)
        if text.startswith("<"):
            text = text[1:].removesuffix(">").strip(_BLANK)
        if _SCHEME.match(text[:_HEAD]):
            yield text
            if depth and "!/" in text:  # a file of files, and the one in it
                yield text.partition("!/")[0]
        around = _AROUND.match(text)
        if around is None:
            return
        text = text[around.end() :]


def _places(scheme: str, rest: str) -> frozenset[str]:
    parts = _PARTS.match(rest.lstrip("/"))
    assert parts is not None  # every text fits
    authority, path, query = parts.groups()
    host, port = _host_and_port(authority.rpartition("@")[2])
    paths = {path.replace("\\", "/")}
    if "%" in authority:  # read for the whole text, the escapes may be taken for its end
        host = unquote(host)
        paths.add(unquote(path))
    port = f":{port}" if port and port != _PORTS.get(scheme.lower()) else ""
    mapped = as_host(host)
    hosts = {mapped} if mapped == host.casefold() else {host, mapped}
    found: set[str] = set()
    for path in paths:
        whole = posixpath.normpath(f"/{path.lstrip('/')}")
        whole += "/" * (path.endswith("/") and whole != "/")
        for each in hosts:
            address = f"{scheme}://{each.rstrip('.')}{port}{whole}{query}"
            found |= {address, address.partition("#")[0]}
    return frozenset(found)


def _paths(rest: str) -> frozenset[str]:
    """What may be the path in an address of a file: with and without what stands for the host.

    Where it is a whole one, the address as people write it, too.
    """
    _, slash, below = rest[2:].partition("/")
    found = (rest[2:], slash + below) if rest.startswith("//") else (rest,)
    cut = {each for one in found for each in (one, _PARTS_END.split(one)[0]) if each}
    paths = {without_detours(each) for each in cut}
    return frozenset(paths | {f"{_FILE}{path}" for path in paths if path.startswith("/")})


def _host_and_port(authority: str) -> tuple[str, str]:
    host, colon, port = authority.rpartition(":")
    if not colon or not (port == "" or port.isdecimal()):
        host, port = authority, ""
    return host, port.lstrip("0")
