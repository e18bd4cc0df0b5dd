"""`python -m toolcrib`: the command line."""

from toolcrib.cli import main

main(prog_name="toolcrib")
