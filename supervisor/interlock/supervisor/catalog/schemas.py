"""Tool documents by digest: reported once by workers, fetched by agents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from interlock.bus.errors import MalformedError, TooLargeError
from interlock.bus.limits import MAX_DOCUMENTS
from interlock.bus.messages import Capabilities

DESCRIBED: Final = 4_000
"""Characters of a description that say what a tool is about."""
MAX_ASKED: Final = 10_000
"""Digests in one request; further ones are not answered."""
MAX_REPORT: Final = MAX_DOCUMENTS + (1 << 20)
"""Bytes of one report of documents, with their digests."""
_BESIDE: Final = 68
"""Bytes that a document takes beside itself: its digest and the signs between."""
_Digest = Annotated[str, msgspec.Meta(min_length=64, max_length=64)]
# Ends at the first key that is none, before millions of them are read.
_split: Final = msgspec.json.Decoder(dict[_Digest, msgspec.Raw]).decode


class _Described(msgspec.Struct):
    description: Any = None


class _Schema(msgspec.Struct):
    arguments: msgspec.Raw = msgspec.field(name="inputSchema", default=msgspec.Raw(b"{}"))


def split_documents(body: bytes | None, most: int) -> dict[str, msgspec.Raw]:
    """Return the documents of a report by digest, each as it is written.

    Raises MalformedError for what is no object of `most` documents at most, each an object, also as
    TooLargeError for more than `MAX_REPORT` bytes.
    """
    if not body:
        return {}
    if len(body) > MAX_REPORT:
        raise TooLargeError(len(body), MAX_REPORT)
    try:
        _count(body, most)
        return _split(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(
            "Tool documents are a JSON object by digest, one for each tool."
        ) from error


def _count(body: bytes, most: int) -> None:
    """Raise ValidationError as soon as there are more than `most` documents.

    Hundreds of thousands of them, of a few bytes each, would take a second to be read.
    """
    left = most

    def one_more(document: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError("more documents than tools")

    passed_over = msgspec.defstruct("Document", [], namespace={"__post_init__": one_more})
    msgspec.json.decode(body, type=dict[_Digest, passed_over])  # type: ignore[valid-type]


class Lists(NamedTuple):
    """What is left to say of lists of tools that wait: the newest good one, and one that is bad.

    Each is the place of a list, or None. `body` are the documents of the good one, with those of
    the older ones that it names.
    """

    good: int | None
    body: bytes | None
    bad: int | None


def merge_lists(waiting: Sequence[tuple[Capabilities, bytes | None]]) -> Lists:
    """Make one of lists that one worker sent, the oldest first; takes no more than one report does.

    A worker repeats no document that it sent with an earlier list. What of them there is no room
    for is as if it had not been sent.
    """
    good = bad = None
    wanted: set[str] = set()
    documents: dict[str, msgspec.Raw] = {}
    room = MAX_REPORT
    for place in reversed(range(len(waiting))):
        message, body = waiting[place]
        digests = {row.digest for row in message.rows}
        try:
            found = split_documents(body, len(digests))
        except MalformedError:
            bad = place if bad is None else bad
            continue
        if good is None:
            good, wanted = place, digests
        for digest, document in found.items():
            size = len(document) + _BESIDE
            if digest in wanted and size <= room:
                wanted.remove(digest)
                documents[digest] = document
                room -= size
    return Lists(good, None if good is None else msgspec.json.encode(documents), bad)


_described: Final = msgspec.json.Decoder(_Described).decode
_schema: Final = msgspec.json.Decoder(_Schema).decode


class Schemas:
    """Keeps the documents of each worker's current tools, and shares equal ones.

    A document is taken only under its own SHA-256, so no worker can replace another's.
    """

    def __init__(self) -> None:
        self._documents: dict[str, bytes] = {}
        self._used: dict[str, frozenset[str]] = {}

    def report(self, worker: str, digests: Iterable[str], body: bytes | None) -> tuple[str, ...]:
        """Take the documents of a `capabilities` message; returns the digests still missing.

        `digests` are those of all tools that the worker serves now; documents that no worker uses
        any more are forgotten, and those beyond `MAX_DOCUMENTS`. Raises MalformedError if the body
        is no object of documents, one for each digest at most.
        """
        wanted = dict.fromkeys(digests)
        for digest, document in split_documents(body, len(wanted)).items():
            if digest not in wanted or digest in self._documents:
                continue
            if hashlib.sha256(document).hexdigest() == digest:
                self._documents[digest] = bytes(document)
        used = []
        size = 0
        for digest in wanted:
            size += len(self._documents.get(digest, b""))
            if size <= MAX_DOCUMENTS:
                used.append(digest)
        self._used[worker] = frozenset(used)
        self._sweep()
        return tuple(digest for digest in wanted if digest not in self._documents)

    def get(self, digests: Iterable[str]) -> bytes:
        """A JSON object from digest to document, of those that are known."""
        found = {}
        for n, digest in enumerate(digests):
            if n >= MAX_ASKED:
                break
            if digest in self._documents:
                found[digest] = msgspec.Raw(self._documents[digest])
        return msgspec.json.encode(found)

    def descriptions(self, digests: Iterable[str]) -> dict[str, str]:
        """What the documents say of their tools, of those that are known and say anything."""
        found = {}
        for digest in digests:
            document = self._documents.get(digest)
            if document is not None and (text := _description(document)):
                found[digest] = text
        return found

    def arguments(self, digest: str) -> msgspec.Raw:
        """The JSON Schema of a tool's arguments; `{}` if it is not known."""
        try:
            return _schema(self._documents.get(digest, b"{}")).arguments
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return msgspec.Raw(b"{}")  # a worker may send what is no tool

    def knows(self, digest: str) -> bool:
        """Whether that document is here."""
        return digest in self._documents

    def size(self, digests: Iterable[str]) -> int:
        """Bytes of these documents together, each counted as often as it is named."""
        return sum(len(self._documents.get(digest, b"")) for digest in digests)

    def forget(self, worker: str) -> None:
        """The worker left the configuration."""
        if self._used.pop(worker, None) is not None:
            self._sweep()

    def _sweep(self) -> None:
        used: frozenset[str] = frozenset().union(*self._used.values())
        for digest in [digest for digest in self._documents if digest not in used]:
            del self._documents[digest]


def _description(document: bytes) -> str:
    try:
        text = _described(document).description
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""  # a worker may send what is no tool; its name speaks for it
    return text[:DESCRIBED] if isinstance(text, str) else ""
