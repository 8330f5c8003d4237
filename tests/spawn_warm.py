"""Warm entries for the mcp image of the spawner's tests."""

import threading


def light() -> None:
    """Warm nothing: most tests do not need the SDK."""


def broken() -> None:
    raise RuntimeError("no SDK here")


def threaded() -> None:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
