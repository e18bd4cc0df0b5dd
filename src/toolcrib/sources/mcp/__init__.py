"""MCP servers as sources, over stdio, streamable HTTP and SSE; the `mcp` SDK is imported only when one is used."""

from toolcrib.sources.mcp.server import HttpServer, McpServer, Patience, StdioServer

__all__ = ["HttpServer", "McpServer", "Patience", "StdioServer"]
