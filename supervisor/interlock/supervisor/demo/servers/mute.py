"""An MCP server that reads everything and never answers; part of the demonstration."""

import sys

if __name__ == "__main__":
    for _line in sys.stdin:
        pass
