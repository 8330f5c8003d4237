"""An MCP server over stdio whose tools are one of the lists in tool_lists.py; plain JSON-RPC.

python listing_server.py LIST [SECONDS]     answers initialize after that many seconds
"""

import json
import sys
import time

from tool_lists import LISTS

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


def answer(request: dict, tools: dict) -> dict:
    match request["method"]:
        case "initialize":
            time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0)
            return {
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "listing", "version": "1"},
            }
        case "tools/list":
            listed = [
                {"name": name, "description": text, "inputSchema": SCHEMA}
                for name, text in tools.items()
            ]
            return {"tools": listed}
        case "tools/call":
            return {"content": [{"type": "text", "text": f"{request['params']['name']} called"}]}
        case _:
            return {}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            result = answer(message, LISTS[sys.argv[1]])
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
