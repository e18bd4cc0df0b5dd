"""What a model is told before the first prompt of a conversation in an editor."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from toolcrib.adapters.pydantic_ai.toolset import NAME_OF
from toolcrib.agent.session import Session
from toolcrib.operations.rules import Top, instructions
from toolcrib.operations.tools import DEFAULT_SET, SETS

TOP_BYTES = 600
"""Room for the top of the catalog, as JSON: with its tools a model is told of 1,200 tokens at most."""

_WHERE = "You work with a person in their editor, in the folder {cwd}. Paths that you give to tools are absolute."

_HOW = (
    "Do what is asked with tools rather than by telling how; the person sees every call and may be asked before it "
    "runs. What was rejected is not tried again in another way. Where more than a few steps are needed, tell of them "
    "with {plan} and keep that current. Say in the end, in a few words, what was done."
)


def told_to_model(session: Session, cwd: Path, roots: Iterable[Path], plan: str) -> str:
    """Where it works and how, the rules of the operations, and what stands at the top of the catalog by now."""
    where = _WHERE.format(cwd=cwd)
    if more := ", ".join(str(root) for root in roots):
        where += f" These folders belong to it as well: {more}."
    nodes = session.desk.operations.list(session.view()).nodes
    tops = [Top(each.node.name, each.node.summary) for each in nodes]
    rules = instructions(SETS[DEFAULT_SET], tops, room=TOP_BYTES)
    return f"{where}\n{_HOW.format(plan=plan)}\n\n{_under_own_names(rules)}"


def _under_own_names(text: str) -> str:
    for operation, name in NAME_OF.items():
        text = re.sub(rf"\b{operation}\b", name, text)
    return text
