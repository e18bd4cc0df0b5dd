"""The instructions that a model receives before the first prompt of a conversation in an editor."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from toolcrib.adapters.pydantic_ai.toolset import NAME_OF
from toolcrib.agent.session import Session
from toolcrib.operations.rules import Top, instructions
from toolcrib.operations.tools import DEFAULT_SET, SETS

TOP_BYTES = 600
"""Room for the top-level categories, in bytes of JSON. All instructions and tools together stay below 1,200 tokens."""

_WHERE = "You work with a person in their editor, in the folder {cwd}. Paths that you give to tools are absolute."

_HOW = (
    "Do the work with tools instead of explaining how; the person sees every call and may be asked before it runs. "
    "If the person rejects a call, do not try the same in another way. If the work needs more than a few steps, show "
    "them with {plan} and keep that current. At the end, say in a few words what you did."
)


def told_to_model(session: Session, cwd: Path, roots: Iterable[Path], plan: str) -> str:
    """Return the model's instructions: its folders, the rules, and the top-level categories."""
    where = _WHERE.format(cwd=cwd)
    if more := ", ".join(str(root) for root in roots):
        where += f" These folders also belong to the project: {more}."
    nodes = session.desk.operations.list(session.view()).nodes
    tops = [Top(each.node.name, each.node.summary) for each in nodes]
    rules = instructions(SETS[DEFAULT_SET], tops, room=TOP_BYTES)
    return f"{where}\n{_HOW.format(plan=plan)}\n\n{_under_own_names(rules)}"


def _under_own_names(text: str) -> str:
    for operation, name in NAME_OF.items():
        text = re.sub(rf"\b{operation}\b", name, text)
    return text
