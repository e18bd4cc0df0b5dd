"""The programs that have MCP servers in their configuration: where their files are, and how to read and change them."""
