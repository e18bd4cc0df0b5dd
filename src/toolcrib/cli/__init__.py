"""The command line, which combines the other packages into commands for a person at a terminal."""

from toolcrib.cli.app import main

__all__ = ["main"]
