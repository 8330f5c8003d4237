"""What a path, or an address, says once its detours and decorations are taken away; pure."""

from __future__ import annotations

import posixpath
import re
from typing import Final
from urllib.parse import unquote

_FILE: Final = "file://"
_BLANK: Final = "".join(map(chr, range(0x21)))
"""Characters that programs ignore around an address."""
_HEAD: Final = 200
"""Characters in which the scheme of an address ends."""
_SCHEME: Final = re.compile(
    r"[a-z][a-z0-9+.-]{1,40}(?=:[/\\])|(?:file|https?|wss?|ftp)(?=:)", re.IGNORECASE
)
"""Programs take addresses of the usual schemes without any slash, too."""
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
    return _SCHEME.match(_cleaned(text.lstrip(_BLANK)[:_HEAD])) is not None


def unescaped(text: str) -> str:
    """The text with its escapes read once.

    >>> unescaped("file:///%65tc/%70asswd")
    'file:///etc/passwd'
    """
    return unquote(text)


def meanings(text: str) -> frozenset[str]:
    """What an address means in the form that people write; nothing for a text that is none.

    Of a file its path, of all the address without host or user, usual port, needless characters.

    >>> meanings("file://localhost/etc/passwd") >= {"/etc/passwd"}
    True
    >>> sorted(meanings("https:/me@a.example.:443?x"))
    ['https://a.example/?x']
    >>> sorted(meanings("https:a.example/x"))
    ['https://a.example/x']
    """
    if not is_address(text):
        return frozenset()
    scheme, _, rest = _cleaned(text).replace("\\", "/").partition(":")
    if scheme.lower() == "file":
        return _paths(rest)
    parts = _PARTS.match(rest.lstrip("/"))
    assert parts is not None  # every text fits
    authority, path, query = parts.groups()
    host, port = _host_and_port(authority.rpartition("@")[2])
    if port and port != _PORTS.get(scheme.lower()):
        host = f"{host}:{port}"
    whole = posixpath.normpath(f"/{path.lstrip('/')}")
    whole += "/" * (path.endswith("/") and whole != "/")
    address = f"{scheme}://{host}{whole}{query}"
    return frozenset({address, address.partition("#")[0]})


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
    return host.rstrip("."), port.lstrip("0")


def _cleaned(text: str) -> str:
    """The text without what programs leave out of addresses: line breaks, tabs, blank ends."""
    for char in "\t\r\n":
        text = text.replace(char, "")
    return text.strip(_BLANK)
