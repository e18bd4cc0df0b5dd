"""Declared tools: a command line or an HTTP endpoint, written as data, with a schema of its arguments."""
