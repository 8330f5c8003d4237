"""What a worker says of itself to the supervisor, without the values that nobody may read.

Names, reasons, descriptions and schemas come from servers, which know the secrets that their entry
gives them. All of it passes through here, so no status, event, log or record of the supervisor can
hold one. What calls and turns carry is the caller's own and is not looked at.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, TypeVar, cast

import msgspec

from interlock.bus.messages import (
    Capabilities,
    Children,
    ControlUp,
    Notice,
    Ready,
    StateReport,
    WorkerFailed,
)
from interlock.bus.names import LOCAL_MARK
from interlock.bus.records import CapabilityReport, DroppedTool
from interlock.workers.secrets import Masks

MAX_NAMED: Final = 20
"""Tools that are named one by one where their names hold a secret."""
_SAID: Final = (Children, Notice, Ready, StateReport, WorkerFailed)
_WORDS: Final = frozenset(
    "additionalProperties annotations boolean default description destructiveHint format "
    "idempotentHint inputSchema integer maximum minimum number object openWorldHint outputSchema "
    "pattern properties readOnlyHint required string".split()
)
"""Words of every schema; a secret that is one of them cannot be found by its place there."""
_URIS: Final = ("uri", "uriTemplate")
_CALLED: Final = frozenset({"name", "required", "enum", "const", "default", "examples", "$ref"})
"""Fields of a document whose texts a caller has to write exactly so."""
_T = TypeVar("_T")
_DOCUMENTS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Discretion:
    """Takes the values of `masks` out of control messages; one per worker.

    A document that changes gets the digest of what it has become, in each later report, too.
    """

    def __init__(self, masks: Masks) -> None:
        self._masks = masks
        self._digests: dict[str, str] = {}
        """By digest of a document as it was made: the digest under which it was sent. Of the newest
        report only, as the supervisor forgets what that does not name."""

    def said(self, message: ControlUp, body: bytes | None) -> tuple[ControlUp, bytes | None]:
        """Return what may be sent of a message; most are returned as they are.

        A tool whose name holds what is secret for sure is left out and named without it: nobody
        could call it by another name.
        """
        if not self._masks.any:
            return message, body
        if isinstance(message, Capabilities):
            fit = self._documents(body) if body else {}
            named = {row.digest for row in message.rows}
            self._digests = {made: sent for made, sent in self._digests.items() if made in named}
            listed = self._listed(message)
            told = {row.digest for row in listed.rows}  # a tool that is left out has no document
            documents = {digest: raw for digest, raw in fit.items() if digest in told}
            return listed, msgspec.json.encode(documents) if body else body
        return (hidden(message, self._masks) if isinstance(message, _SAID) else message), body

    def _listed(self, message: Capabilities) -> Capabilities:
        rows: list[CapabilityReport] = []
        named: list[DroppedTool] = []
        for row in message.rows:
            name = self._masks.mask_name(row.name)
            if name == row.name:
                digest = self._digests.get(row.digest, row.digest)
                summary = self._masks.mask(row.summary)
                rows.append(msgspec.structs.replace(row, digest=digest, summary=summary))
            elif len(named) < MAX_NAMED:
                reason = "its name holds a value that is secret"
                named.append(DroppedTool(name=name.replace(LOCAL_MARK, " "), reason=reason))
        left = len(message.rows) - len(rows) - len(named)
        if left:
            reason = f"the names of {left} more hold a value that is secret"
            named.append(DroppedTool(name="further tools", reason=reason))
        told = [
            msgspec.structs.replace(
                one, name=self._masks.mask_name(one.name), reason=self._masks.mask(one.reason)
            )
            for one in message.dropped
        ]
        return Capabilities(rows=tuple(rows), dropped=(*named, *told))

    def _documents(self, body: bytes) -> dict[str, msgspec.Raw]:
        sent: dict[str, msgspec.Raw] = {}
        for digest, raw in _DOCUMENTS.decode(body).items():
            text = bytes(raw).decode()
            if self._masks.mask(text) == text:
                sent[digest] = raw
                continue
            document = msgspec.json.encode(hidden(msgspec.json.decode(raw), self._masks))
            self._digests[digest] = new = hashlib.sha256(document).hexdigest()
            sent[new] = msgspec.Raw(document)
        return sent


def hidden(value: _T, masks: Masks) -> _T:
    """Return a struct or JSON value with the hidden values of all its texts replaced.

    >>> masks = Masks()
    >>> masks.add("correct horse")
    >>> hidden({"type": "object", "default": ["a correct horse"]}, masks)
    {'type': 'object', 'default': ['a [secret]']}
    """
    return cast("_T", _hidden(value, masks))


def hidden_entry(raw: bytes, masks: Masks) -> bytes:
    """Return an entry of a server's list with all hidden values replaced but those in its names.

    For use before anything of the entry is cut: a cut leaves the beginning of a value. By its
    names the server knows the entry, so one that holds a value cannot be another; who says such a
    name has to leave it out.
    """
    text = raw.decode(errors="replace")
    if not masks.any or masks.mask(text) == text:
        return raw
    try:
        entry = msgspec.json.decode(raw)
        shown = _hidden(entry, masks)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return raw  # nothing of it is told, as it cannot be read
    if isinstance(entry, dict):
        names = [key for key in _URIS if key in entry] or ["name"]
        shown |= {key: entry[key] for key in names if key in entry}
    return msgspec.json.encode(shown)


def _hidden(value: Any, masks: Masks, called: bool = False) -> Any:
    """Do as `hidden`; `called`: the texts are what a caller has to write, as keys are always."""
    match value:
        case str() if value in _WORDS:
            return value
        case str():
            return masks.mask_name(value) if called else masks.mask(value)
        case dict():
            return {
                _hidden(key, masks, called=True): _hidden(inner, masks, called=key in _CALLED)
                for key, inner in value.items()
            }
        case list() | tuple():
            return type(value)(_hidden(inner, masks, called) for inner in value)
        case msgspec.Struct():
            fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
            shown = {name: _hidden(inner, masks) for name, inner in fields}
            return msgspec.structs.replace(value, **shown)
        case _:
            return value
