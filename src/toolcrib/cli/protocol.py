"""`toolcrib instructions` and `schema`: print the instructions for models and the JSON Schema of the protocol."""

from __future__ import annotations

import json
from pathlib import Path

from toolcrib.cli.places import store_of
from toolcrib.cli.terminal_output import run, stdout
from toolcrib.config import read_config
from toolcrib.config.registrations import joined
from toolcrib.crib.top_level import top_level
from toolcrib.operations.briefing import briefing
from toolcrib.operations.rules import instructions as rules
from toolcrib.operations.schemas import document
from toolcrib.operations.tools import chosen


def instructions(config: Path, operations: str, *, full: bool) -> None:
    """Print the instructions for a set of operations over the servers of `config`. No server starts."""

    async def main() -> None:
        exposed, inside = chosen(operations), top_level(joined(read_config(config), store_of(config).all()).config)
        told = rules(exposed, inside, full=True) if full else briefing(exposed, inside).instructions
        stdout.print(told, markup=False, soft_wrap=True)

    run(main, as_json=False)


def schema() -> None:
    """Print the JSON Schema of all messages."""
    stdout.print(json.dumps(document(), indent=2), markup=False, soft_wrap=True)
