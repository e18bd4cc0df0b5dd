"""MCP servers as sources, over every transport. The `mcp` SDK is imported only when a server is used."""

from toolcrib.sources.mcp.server_spec import AnyServer, CarriedServer, HttpServer, McpServer, Patience, StdioServer

__all__ = ["AnyServer", "CarriedServer", "HttpServer", "McpServer", "Patience", "StdioServer"]
