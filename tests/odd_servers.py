"""Nine servers with 283 tools whose names are hard to tell apart or to write."""

from __future__ import annotations

import runpy

from supervised import ROGUE

SERVERS = (
    "a",
    "a.b",
    "a_b",
    "a-b",
    "A",
    "a__b",
    "文件",
    "1",
    "a-server-with-a-name-of-40-characters-or-so",
)
"""Names of servers that meet as soon as somebody folds, joins or cuts them carelessly."""
_names = runpy.run_path(str(ROGUE), run_name="rogue")["odd_names"]
TOOLS: dict[str, list[str]] = {
    server: _names(int(place >= 4)) for place, server in enumerate(SERVERS)
}


def seed(server: str) -> int:
    """What `names=` of the rogue server has to be for that server."""
    return int(SERVERS.index(server) >= 4)
