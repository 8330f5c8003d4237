"""The npm packages that tests run, with the Node that was installed beside this Python."""

from __future__ import annotations

import sys
from pathlib import Path

NODE = Path(sys.executable).parent / "node"
PACKAGES = Path(__file__).parent / "node" / "node_modules"


def npm_server(name: str) -> tuple[str, str]:
    """The command that runs an official MCP server, such as `memory`."""
    program = PACKAGES / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"
    for needed in (NODE, program):
        assert needed.exists(), f"{needed} is missing: `make test` installs what the tests need"
    return str(NODE), str(program)
