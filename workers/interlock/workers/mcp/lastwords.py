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
_CODES: Final = r"(?!(?:ERR|EAI|EX|E)_|NODE_MODULE_VERSION)"
"""Names of errors, which begin like variables: ERR_MODULE_NOT_FOUND, EAI_AGAIN, EX_CONFIG."""
_LONG: Final = re.compile(rf"(?<![\w-]){_CODES}([A-Z][A-Z0-9]*_[A-Z0-9_]{{1,60}})(?![\w-])")
_SECRET: Final = re.compile(
    r"(?<![\w-])([A-Z0-9]{0,60}(?:TOKEN|APIKEY|SECRET|PASSWORD))(?![\w-])(?!\s+[A-Z]{2})"
)
"""One word is a name if it says that it is a secret, or stands beside `environment variable`."""
_WORD: Final = r"([A-Z][A-Z0-9]{2,60})(?![\w-])"
_VARIABLE: Final = r"(?:env(?:ironment)?[ .](?:var(?:iable)?s?)?|variables?)"
_AFTER: Final = re.compile(rf"(?:\b{_VARIABLE}|KeyError:)[\s:=]{{0,3}}[\"'`$]{{0,2}}{_WORD}")
_BEFORE: Final = re.compile(rf"(?<![\w-]){_WORD}[\"'`]? \(?{_VARIABLE}")
_ABOUT: Final = re.compile(
    r"\b(?:environ\w*|env|variables?|requires?|required|missing|unset|must|needs?|needed|empty"
    r"|KeyError|undefined|without|expected|set|provide|define|export|specify|supply|configure"
    r"|(?:not|never|no) (?:been |yet )?(?:set|found|defined|provided|configured|specified))\b",
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
    found = (name for form in (_LONG, _AFTER, _BEFORE, _SECRET) for name in form.findall(words))
    names = (name for name in found if not name.startswith(OWN_PREFIX))
    return next((name for name in names if name not in seen), "")
