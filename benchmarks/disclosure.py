"""What a task costs by the way its tools reach the model: `python benchmarks/disclosure.py [--tasks 8] [--write]`.

557 tools of 24 published servers, from ../shared/real-servers, stand in one prompt, each server a section; or they are
searched for. The model is scripted: it opens the right section, or searches, calls the right tools one after the
other, and answers. So this measures what is sent and nothing of how well models choose.

Prints one JSON object with means over the tasks; `--write` puts them as a table into `docs/loops.md`. A token is
estimated as four UTF-8 bytes of compact JSON. `sent` is all that goes over the wire. `read` is what of it a model has
before it: tools that a provider holds back are not read before they are revealed, and are from then on. `cacheable` is
what of that begins as the request before it did (tools, system text, messages), so no provider's cache can save more;
each task begins with an empty one.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import anyio
import orjson

import catalog
from toolcrib import Delivery, InnerLoopConfig, MainLoop, MarkdownSection, PromptTemplate, SectionVisibility, Toolcrib
from toolcrib.adapters.scripted import ScriptedAdapter
from toolcrib.agent.conversation.messages import (
    AssistantMessage,
    Message,
    ModelRequest,
    ModelTurn,
    Stop,
    ToolCall,
    ToolMessage,
    ToolSpec,
)
from toolcrib.agent.session import Session
from toolcrib.core.digests import BYTES_PER_TOKEN
from toolcrib.core.results import ToolResult
from toolcrib.sources.tool_definitions import read_definitions
from toolcrib.testing.scripted_source import ScriptedSource

SERVERS = catalog.SHARED / "real-servers" / "tools.json"
PAGE = Path(__file__).parents[1] / "docs" / "loops.md"

RESULT = "A line of the answer. " * 20
"""What every tool answers: 110 estimated tokens."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One call that a task takes, and what a model would search for that has to make it."""

    server: str
    tool: str
    query: str
    arguments: Mapping[str, Any]

    @property
    def id(self) -> str:
        return f"{self.server}.{self.tool}"


TASKS: Sequence[Sequence[Wanted]] = (
    (
        Wanted("git", "git_log", "show the last commits", {"repo_path": "."}),
        Wanted("git", "git_show", "show the contents of a commit", {"repo_path": ".", "revision": "HEAD"}),
    ),
    (
        Wanted("excel", "read_range", "read cells of a workbook", {"path": "/sales.xlsx", "sheet": "May"}),
        Wanted(
            "excel",
            "create_chart",
            "add a chart to a workbook",
            {"path": "/sales.xlsx", "sheet": "May", "chart_type": "bar"},
        ),
    ),
    (
        Wanted("playwright-allcaps", "browser_navigate", "navigate to a URL", {"url": "https://example.org"}),
        Wanted("playwright-allcaps", "browser_take_screenshot", "take a screenshot of the page", {"scale": "css"}),
    ),
    (
        Wanted("kubernetes", "kubectl_get", "list resources of a Kubernetes cluster by type", {"resourceType": "pods"}),
        Wanted(
            "kubernetes",
            "kubectl_logs",
            "logs of a Kubernetes pod",
            {"resourceType": "pod", "name": "api", "namespace": "shop"},
        ),
    ),
    (
        Wanted("word", "get_document_text", "extract all text from a Word document", {"filename": "plan.docx"}),
        Wanted("powerpoint", "create_presentation", "create a new PowerPoint presentation", {}),
        Wanted("powerpoint", "add_slide", "add a slide to the presentation", {}),
    ),
    (
        Wanted("sentry", "search_issues", "search for issues in Sentry", {"organizationSlug": "shop"}),
        Wanted("notion", "API-post-search", "search Notion by title", {"query": "Incidents"}),
    ),
    (
        Wanted("cloudflare", "worker_put", "update a Worker script", {"name": "hello", "script": "x"}),
        Wanted(
            "cloudflare",
            "route_create",
            "create a route that maps to a Worker",
            {"zoneId": "z", "pattern": "example.org/*", "scriptName": "hello"},
        ),
    ),
    (
        Wanted(
            "time",
            "convert_time",
            "convert time between time zones",
            {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Way:
    """How tools reach the model."""

    label: str
    delivery: Delivery
    reveals_unlisted: bool = False
    operations: tuple[str, ...] = ()
    """Where these are given, there are no sections, and tools are searched for."""
    is_up_front: bool = False


_SEARCH = ("search_tools", "expand_tool")

WAYS = (
    Way("everything up front", Delivery.INJECT, is_up_front=True),
    Way("sections, INJECT", Delivery.INJECT),
    Way("sections, DEFER, tools brought by a message", Delivery.DEFER, reveals_unlisted=True),
    Way("sections, DEFER, tools listed and held back", Delivery.DEFER),
    Way("sections, RESTART", Delivery.RESTART),
    Way("sections, PROXY", Delivery.PROXY),
    Way("search, INJECT", Delivery.INJECT, operations=_SEARCH),
    Way("search, DEFER, tools brought by a message", Delivery.DEFER, reveals_unlisted=True, operations=_SEARCH),
    Way("search, PROXY", Delivery.PROXY, operations=(*_SEARCH, "call_tool")),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=len(TASKS), help="so many of them")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    asked = parser.parse_args()
    if not SERVERS.exists():
        print(json.dumps({"benchmark": "disclosure", "skipped": f"{SERVERS} is not here"}))
        raise SystemExit(1 if asked.write else 0)
    logging.getLogger("toolcrib").setLevel(logging.ERROR)  # each made-up answer misses the output schema of its tool
    report = anyio.run(measured, TASKS[: asked.tasks])
    print(json.dumps(report, indent=1))
    if asked.write:
        PAGE.write_text(written(PAGE.read_text(), report))


async def measured(tasks: Sequence[Sequence[Wanted]]) -> Json:
    """Means over `tasks`, by way."""
    async with Toolcrib() as crib:
        count = 0
        for server, answer in json.loads(SERVERS.read_text()).items():
            tools, _ = read_definitions(server, answer["tools"])
            count += len(tools)
            answers = {tool.name: ToolResult.of(None, text=RESULT) for tool in tools}
            crib.add_source(ScriptedSource(server, tools, answers=answers))
        await crib.ready()
        ways = {way.label: [await cost(crib, way, task) for task in tasks] for way in WAYS}
    report: Json = {"tools": count, "tasks": len(tasks), "calls": sum(map(len, tasks)), "ways": {}}
    base: Json = {}
    for label, costs in ways.items():
        means = {key: fmean(each[key] for each in costs) for key in costs[0]}
        base = base or means
        rounded = {key: round(mean, 1 if key == "requests" else None) for key, mean in means.items()}
        ratios = {f"up front / {key}": round(base[key] / means[key], 1) for key in ("read", "not cacheable")}
        report["ways"][label] = rounded | ratios
    return report


async def cost(crib: Toolcrib, way: Way, task: Sequence[Wanted]) -> Mapping[str, float]:
    """Requests, and estimated tokens of all of them together, that one task takes."""
    session = crib.session()
    model = ScriptedAdapter(Model(session, way, task), delivery=way.delivery, reveals_unlisted=way.reveals_unlisted)
    loop = MainLoop(config=InnerLoopConfig(operations=way.operations))
    await loop.execute(template(session, way).bind(), session=session, adapter=model, request="Do what is to be done.")
    answers = [message for message in model.requests[-1].messages if isinstance(message, ToolMessage)]
    assert not [answer for answer in answers if answer.is_error], f"{way.label}: a call failed"
    assert sum(RESULT in answer.content for answer in answers) == len(task), f"{way.label}: a call is missing"
    read = [b"".join(read_parts(request)) for request in model.requests]
    cacheable = sum(shared(before, after) for before, after in zip([b"", *read], read, strict=False))
    return {
        "requests": len(read),
        "sent": sum(map(len, (b"".join(sent_parts(each, way)) for each in model.requests))) / BYTES_PER_TOKEN,
        "read": sum(map(len, read)) / BYTES_PER_TOKEN,
        "cacheable": cacheable / BYTES_PER_TOKEN,
        "not cacheable": (sum(map(len, read)) - cacheable) / BYTES_PER_TOKEN,
    }


def template(session: Session, way: Way) -> PromptTemplate[str]:
    """A short task, and a section for each server: its summary is what the catalog says of the server."""
    task = MarkdownSection("Task", "task", "You help with whatever is asked. Use the tools, one step after the other.")
    if way.operations:
        return PromptTemplate[str]("benchmark", "search", [task])
    visibility = SectionVisibility.FULL if way.is_up_front else SectionVisibility.SUMMARY
    sections = [task]
    for node in (pointer.node for pointer in session.list(limit=50).nodes):
        name = node.name
        tools = [tool.id for tool in session.view().tools.values() if tool.source == name]
        said = node.summary.replace("$", "$$")
        sections.append(MarkdownSection(node.title or name, name, said, said, visibility, tools=tools))
    return PromptTemplate[str]("benchmark", "sections", sections)


class Model:
    """Does `task` in as few turns as it can, with one call in each; what it was told before it does not ask again."""

    def __init__(self, session: Session, way: Way, task: Sequence[Wanted]) -> None:
        self._names = session.view().names
        self._way = way
        self._steps = [*_planned(way, task)]
        self._at = 0

    def __call__(self, request: ModelRequest) -> ModelTurn:
        if self._at == len(self._steps):
            return ModelTurn(AssistantMessage("It is done."))
        name, arguments = self._steps[self._at](request, self._names)
        self._at += 1
        call = ToolCall(f"call-{self._at}", name, json.dumps(arguments, separators=(",", ":")))
        return ModelTurn(AssistantMessage("", (call,)), Stop.CALLS)


Action = Callable[[ModelRequest, Mapping[str, str]], tuple[str, Mapping[str, Any]]]
"""A call, by what the model was sent and the names of the tools by id."""


def _planned(way: Way, task: Sequence[Wanted]) -> Iterator[Action]:
    opened = set[str]()
    for wanted in task:
        if way.operations:
            yield lambda _, __, wanted=wanted: ("search_tools", {"query": wanted.query})
            yield lambda request, _, wanted=wanted: ("expand_tool", {"tool_id": _found(request, wanted)})
        elif not way.is_up_front and wanted.server not in opened:
            opened.add(wanted.server)
            yield lambda _, __, wanted=wanted: ("read_section", {"section_key": wanted.server})
        yield lambda request, names, wanted=wanted: _calling(way, wanted, request, names)


def _found(request: ModelRequest, wanted: Wanted) -> str:
    page = json.loads(_last(request).content)
    found = [result["tool_id"] for result in page["results"]]
    assert wanted.id in found, f"{wanted.query!r} finds {found}"
    return wanted.id


def _last(request: ModelRequest) -> ToolMessage:
    message = request.messages[-1]
    assert isinstance(message, ToolMessage)
    return message


def _calling(
    way: Way, wanted: Wanted, request: ModelRequest, names: Mapping[str, str]
) -> tuple[str, Mapping[str, Any]]:
    if way.delivery is not Delivery.PROXY:
        return names[wanted.id], wanted.arguments
    told = "\n".join(message.content for message in request.messages if isinstance(message, ToolMessage))
    handles = re.findall(rf'"handle":"({re.escape(wanted.id)}@[^"]+)"', told)
    return "call_tool", {"tool_id": handles[-1], "arguments": wanted.arguments}


def sent_parts(request: ModelRequest, way: Way) -> Iterator[bytes]:
    """A request as it goes over the wire; of tools that stand in the list, a message says nothing but the names."""
    yield from map(_tool, request.tools)
    yield orjson.dumps(request.system)
    for message in request.messages:
        wire = message.to_wire()
        if isinstance(message, ToolMessage) and message.revealed and not way.reveals_unlisted:
            wire["revealed"] = [tool.name for tool in message.revealed]
        yield orjson.dumps(wire)


def read_parts(request: ModelRequest) -> Iterator[bytes]:
    """A request as the model has it before it: without what is held back, and with all that was revealed."""
    yield from (_tool(tool) for tool in request.tools if not tool.is_deferred)
    yield orjson.dumps(request.system)
    yield from (orjson.dumps(_shown(message).to_wire()) for message in request.messages)


def _tool(spec: ToolSpec) -> bytes:
    return orjson.dumps(spec.to_wire(), default=dict)


def _shown(message: Message) -> Message:
    if not isinstance(message, ToolMessage):
        return message
    return replace(message, revealed=tuple(replace(tool, is_deferred=False) for tool in message.revealed))


def shared(before: bytes, after: bytes) -> int:
    """Bytes with which both begin."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if before[:middle] == after[:middle] else (low, middle - 1)
    return low


def written(page: str, report: Json) -> str:
    """The page with the table anew between `<!-- measured: disclosure -->` and `<!-- end -->`."""
    part = re.compile(r"(<!-- measured: disclosure -->\n).*?(<!-- end -->)", re.DOTALL)
    return part.sub(lambda found: f"{found[1]}{_table(report)}\n{found[2]}", page)


def _table(report: Json) -> str:
    first = next(iter(report["ways"].values()))
    rows: list[Iterable[str]] = [("", *first), ["---", *("---:" for _ in first)]]
    rows += [(label, *(f"{each:,}" for each in figures.values())) for label, figures in report["ways"].items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    main()
