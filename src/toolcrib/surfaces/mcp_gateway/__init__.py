"""The operations as an MCP server, for clients of both protocol eras."""
