"""Which variables a worker gets: a short allow-list and what its entry names, never INTERLOCK_*."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase, translate
from typing import Final

ALWAYS: Final = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_*",
    "TMPDIR",
    "TERM",
    "TZ",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
)
"""Variables that every worker gets; `*` stands for any text."""
NEVER: Final = "INTERLOCK_"
"""How the names of those begin that no worker gets."""


_always: Final = re.compile("|".join(map(translate, ALWAYS))).match
"""Compiled in the image: each worker would compile a pattern per name, in memory of its own."""
_WILD: Final = frozenset("*?[")


def scrub(environ: Mapping[str, str], keep: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables that match ALWAYS or a name or pattern of `keep`.

    >>> scrub({"PATH": "/bin", "OPENAI_API_KEY": "k", "INTERLOCK_HOME": "/h"}, ["INTERLOCK_*"])
    {'PATH': '/bin'}
    """
    names = set(keep)
    patterns = [one for one in names if not _WILD.isdisjoint(one)]
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(NEVER)
        and (_always(name) or name in names or any(fnmatchcase(name, one) for one in patterns))
    }
