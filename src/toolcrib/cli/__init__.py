"""The command line: the roof, which puts the parts together for a person at a terminal."""

from toolcrib.cli.app import main

__all__ = ["main"]
