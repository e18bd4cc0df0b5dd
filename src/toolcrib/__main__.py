"""Runs the command line: `python -m toolcrib`."""

from toolcrib.cli import main

main(prog_name="toolcrib")
