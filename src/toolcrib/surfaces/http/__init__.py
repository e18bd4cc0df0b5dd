"""Everything that is served over HTTP: the MCP endpoint, the operations as an API, health and metrics."""
