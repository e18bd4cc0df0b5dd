"""The programs that MCP servers are configured in: where their files are, what stands there, and how it is changed."""
