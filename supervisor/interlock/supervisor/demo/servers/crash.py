"""An MCP server that dies as soon as it is started; part of the demonstration."""

import os
import sys

if __name__ == "__main__":
    sys.stderr.write("crash: this server always dies\n")
    sys.stderr.flush()
    os._exit(3)
