"""The HTTP surface: the MCP endpoint, the operations as an HTTP API, health checks and metrics."""
