"""Conversations with models: one request after the other, the tools that they call, and sections that open."""
