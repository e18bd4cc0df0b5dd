"""Run a prompt with a section that the model opens, together with its tool: `python loop.py openai:gpt-5.6`.

Without the name of a model, a script plays the model.
"""

import sys

from toolcrib import MainLoop, MarkdownSection, PromptTemplate, SectionVisibility, Toolcrib, get_adapter
from toolcrib.adapters.scripted import ScriptedAdapter

SCRIPT = [
    {"calls": [{"name": "read_section", "arguments": {"section_key": "lending"}}]},
    {"calls": [{"name": "loan_fee", "arguments": {"days": 3}}]},
    {"text": "4.5"},
]


def loan_fee(days: int, daily_rate: float = 1.5) -> float:
    """What it costs to borrow a tool for some days."""
    return days * daily_rate


lending = MarkdownSection(
    title="Lending",
    key="lending",
    template="A day that has begun counts as a full day.",
    summary="What it costs to borrow a tool.",
    visibility=SectionVisibility.SUMMARY,
    tools=[loan_fee],
)
task = MarkdownSection("Task", "task", "You work at the counter of a tool crib. Answer the questions of its customers.")
prompt = PromptTemplate[float]("example", "counter", [task, lending]).bind()

adapter = get_adapter(sys.argv[1]) if sys.argv[1:] else ScriptedAdapter(SCRIPT)
session = Toolcrib().session()
answer = MainLoop().execute_sync(prompt, session=session, adapter=adapter, request="What do three days cost?")
print(answer.output)
