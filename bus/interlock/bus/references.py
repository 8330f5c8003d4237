"""What stands in `${...}` that is no variable: how other programs name things, and keyrings; pure.

Both who checks a configuration and who resolves its values have to say the same of it.
"""

from __future__ import annotations

import re
from typing import Final

KEYRING_SERVICE: Final = "interlock"
"""The service under which a keyring has the values; the user name is the name in `${keyring:}`."""
KEYRING: Final = "keyring:"
ALLOWED_BACKENDS: Final = ("keyring.backends.", "keyring.testing.")
"""Other backends may ask for a password on a terminal, which would block the worker."""
_REFERENCE: Final = re.compile(r"\$(?:\$|\{([^{}]*)\})")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN_FORMS: Final = "write a value, `${NAME}`, `${NAME:-default}` or `${keyring:NAME}`"
_EDITOR: Final = {
    "workspaceFolder": "Write `.` in its place: relative paths count from the folder of this file.",
    "workspaceRoot": "Write `.` in its place: relative paths count from the folder of this file.",
    "workspaceFolderBasename": "Write the name of the folder in its place.",
    "userHome": "Write ${HOME} in its place.",
    "pathSeparator": "Write / in its place.",
    "/": "Write / in its place.",
}


def references(value: str) -> list[str]:
    """Return the inner texts of all references in `value`, in order.

    >>> references("Bearer ${keyring:github} $${no}")
    ['keyring:github']
    """
    return [match[1] for match in _REFERENCE.finditer(value) if match[1] is not None]


def replaced(value: str, found: dict[str, str]) -> str:
    """Return `value` with its references as `found` has them, and `$` for `$$`."""
    return _REFERENCE.sub(lambda match: "$" if match[1] is None else found[match[1]], value)


def foreign(reference: str) -> tuple[str, str] | None:
    """Return what a reference is that no variable can be named, and what to write; else None.

    >>> foreign("env:HOME")
    ('editors write the variable HOME so', 'Write ${HOME} in its place.')
    """
    if reference in _EDITOR:
        return "only an editor knows it", _EDITOR[reference]
    name = reference.partition(":-")[0]
    if _VARIABLE.fullmatch(name) or not name.strip():
        return None
    kind, colon, rest = name.partition(":")
    if kind == "env" and _VARIABLE.fullmatch(rest):
        return f"editors write the variable {rest} so", f"Write ${{{rest}}} in its place."
    if kind == "input" and colon:
        why = "editors ask a person for it, which Interlock does not"
        return why, f"In its place {_OWN_FORMS}."
    return "no variable is named so", f"In its place {_OWN_FORMS}."


def keyring_fault(backend: str) -> tuple[str, str] | None:
    """Return why a keyring of that class (module and name) is not read, and what to do; or None.

    >>> keyring_fault("keyring.backends.fail.Keyring")[0]
    'there is no system keyring here'
    """
    if backend.startswith("keyring.backends.fail"):
        why = "there is no system keyring here"
    elif backend.startswith("keyring.backends.null"):
        why = f"the keyring is switched off ({backend})"
    elif backend.startswith(ALLOWED_BACKENDS):
        return None
    else:
        why = (
            f"{backend} is not read: it may ask for a password at a terminal, or keep values "
            "without protection"
        )
    fix = (
        "Use an environment variable, `${NAME}`; or the keyring of a desktop (Secret Service, "
        "KWallet, macOS), which a machine without one does not have."
    )
    return why, fix
