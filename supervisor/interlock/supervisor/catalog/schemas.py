"""Tool documents by digest: reported once by workers, fetched by agents."""

from __future__ import annotations

from collections.abc import Iterable


class Schemas:
    """Keeps the documents of each worker's current tools."""

    def __init__(self) -> None:
        raise NotImplementedError

    def report(self, worker: str, digests: Iterable[str], body: bytes | None) -> tuple[str, ...]:
        """Take the documents of a `capabilities` message; returns the digests still missing.

        Raises MalformedError if the body is no object from digest to document.
        """
        raise NotImplementedError

    def get(self, digests: Iterable[str]) -> bytes:
        """A JSON object from digest to document, of those that are known."""
        raise NotImplementedError

    def forget(self, worker: str) -> None:
        """The worker left the configuration."""
        raise NotImplementedError
