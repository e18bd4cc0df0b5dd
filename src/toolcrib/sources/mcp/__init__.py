"""MCP servers as sources, however they are reached; the `mcp` SDK is imported only when one is used."""

from toolcrib.sources.mcp.server import AnyServer, CarriedServer, HttpServer, McpServer, Patience, StdioServer

__all__ = ["AnyServer", "CarriedServer", "HttpServer", "McpServer", "Patience", "StdioServer"]
