"""`toolcrib describe`: the tools as text for a system prompt."""

from __future__ import annotations

from pathlib import Path

from toolcrib.cli.opened_catalog import opened
from toolcrib.cli.terminal_output import plain, print_json, run, stderr, stdout, tell_unavailable, write
from toolcrib.operations.messages import DetailLevel


def describe(
    config: Path,
    tools: Path | None,
    detail: str,
    budget_tokens: int,
    wait_s: float,
    *,
    bundle: str | None,
    as_json: bool,
) -> None:
    """Print the text for the prompt on standard output, and everything else on standard error."""

    async def main() -> None:
        async with opened(config, tools, wait_s=wait_s, bundle=bundle) as crib:
            told = crib.describe(DetailLevel(detail), budget_tokens)
            if as_json:
                print_json(told.to_wire())
                return
            if stdout.is_terminal:
                stdout.print(plain(told.text), markup=False, end="")
            else:  # keep every byte: a prompt cache depends on it
                write(told.text)
            if lost := crib.list().missing.unavailable:
                tell_unavailable(lost)
            count = len(told.left_out)
            left = f"; {count:,} more not shown" if count else ""
            stderr.print(f"About {told.tokens:,} tokens; {len(told.shown):,} tools{left}.", style="dim", markup=False)

    run(main, as_json=as_json)
