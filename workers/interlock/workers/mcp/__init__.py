"""The worker that owns one MCP server."""
