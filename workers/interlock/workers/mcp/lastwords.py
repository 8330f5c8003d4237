"""Which of a server's last lines tells why it ended, and what that asks for; pure."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from typing import Final

from interlock.workers.secrets import OWN_PREFIX

_USELESS: Final = re.compile(
    r"npm (?:error|ERR!|notice|warn|WARN)(?: A complete log of this run.*| Note that .*)?$"
    r"|npm (?:notice|warn|WARN) .*|Node\.js v\S+$|at \S.*|\S+: .*[\[{,]$|[a-z]\w*: .*,$|[\W_]*$",
)
"""What stands after the sentence that tells: where a log is, versions, places in the code."""
_NPM: Final = re.compile(r"npm (?:error|ERR!) ")
_NPM_PART: Final = re.compile(r"npm (?:error|ERR!) (?:code|errno|syscall|path|dest|type)\b")
_ERROR: Final = re.compile(r"(?:Uncaught )?\w*(?:Error|Exception)\b.*:|error\b[:\[ ]")
_NAME: Final = re.compile(r"(?<![\w$-])(?!E[A-Z]*_|ERR_)([A-Z][A-Z0-9]*_[A-Z0-9_]{1,60})(?![\w-])")
_ABOUT: Final = re.compile(
    r"\b(?:environ\w*|env|variables?|requires?|required|missing|unset|not set|must|KeyError)\b",
    re.IGNORECASE,
)


def telling(lines: Sequence[str]) -> str:
    """Return the line that tells the most of the last ones: the last, unless that says nothing.

    >>> telling(["Error: no such module", "at load (x.js:1:1)", "}", "Node.js v22.1.0"])
    'Error: no such module'
    """
    if not lines:
        return ""
    if not _USELESS.match(lines[-1]):
        return lines[-1]
    said = [line for line in lines if not _USELESS.match(line)]
    if _NPM.match(lines[-1]):
        npm = [line for line in said if _NPM.match(line)]
        return next((line for line in npm if not _NPM_PART.match(line)), lines[-1])
    errors = [line for line in said if _ERROR.match(line)]
    return (errors or said or lines)[-1]


def unseen_variable(words: str, seen: Container[str]) -> str:
    """Return the variable that a server misses by its own words and does not see; "" if none.

    >>> unseen_variable("Error: GITHUB_TOKEN environment variable is required", {"PATH"})
    'GITHUB_TOKEN'
    """
    if not _ABOUT.search(words):
        return ""
    names = (name for name in _NAME.findall(words) if not name.startswith(OWN_PREFIX))
    return next((name for name in names if name not in seen), "")
