"""The smallest MCP server over stdio: `echo` answers with its text, `mute` never answers."""

import json
import sys

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


def answer(request: dict) -> dict | None:
    match request["method"]:
        case "initialize":
            return {
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "small", "version": "1"},
            }
        case "tools/list":
            return {"tools": [{"name": name, "inputSchema": SCHEMA} for name in ("echo", "mute")]}
        case "tools/call" if request["params"]["name"] == "mute":
            return None
        case "tools/call":
            text = request["params"]["arguments"].get("text", "")
            return {"content": [{"type": "text", "text": text}], "isError": text == "error"}
        case _:
            return {}


def main() -> None:
    sys.stderr.write("small server begins\n")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            result = answer(message)
            if result is not None:
                reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
                sys.stdout.write(json.dumps(reply) + "\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
