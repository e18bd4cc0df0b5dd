"""Show which tools an agent finds in different editors, and what a model gets. Then rename a symbol.

The editor is a fake one that speaks the protocol over a real stream. The model plays a script. The file is real.

    python examples/acp_tool_discovery.py
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from acp.schema import FileEditToolCallContent
from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from toolcrib import CAREFUL, ToolCatalog, Toolcrib, ToolDescriptor
from toolcrib.adapters.pydantic_ai import create_pydantic_agent, create_toolset_from_catalog, scripted_model
from toolcrib.surfaces.acp_agent.agent import Setup
from toolcrib.surfaces.acp_agent.port import EditorPort, offer_of
from toolcrib.surfaces.acp_agent.serving import serve_streams
from toolcrib.testing import FakeAcpClient
from toolcrib.testing.acp.mcp_server import McpTool
from toolcrib.testing.acp.permissions import Choice, PermissionAsked

BEFORE = "def saw():\n    return 'blunt'\n\n\nprint(saw())\n"


def takes(*names: str) -> dict[str, Any]:
    """Return the JSON Schema of an object with these string properties."""
    properties = {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": properties, "required": [*names], "additionalProperties": False}


CATALOG = ToolCatalog(
    (
        ToolDescriptor(
            "rename_symbol",
            "edit",
            "Rename a symbol in every file of the project.",
            takes("old_name", "new_name"),
            requires_permission=True,
            categories=("refactoring",),
        ),
        ToolDescriptor(
            "find_usages", "search", "Find where a symbol is used.", takes("symbol"), categories=("navigation",)
        ),
    )
)
"""The tools of the editor, as in its answer to `_toolcrib/discover_tools`."""


def changes_in(folder: Path, arguments: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the diffs of the editor's own renaming, as the editor sends them."""
    diffs: list[dict[str, str]] = []
    for path in sorted(folder.glob("*.py")):
        old_text = path.read_text()
        new_text = re.sub(rf"\b{arguments['old_name']}\b", arguments["new_name"], old_text)
        if new_text != old_text:
            diffs.append({"path": str(path), "oldText": old_text, "newText": new_text})
    return diffs


def preview_in(folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the editor's answer to `_toolcrib/preview_tool`, and change nothing."""
    return {"diffs": changes_in(folder, arguments)}


def rename_in(folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Rename on the disk, and return what was changed."""
    diffs = changes_in(folder, arguments)
    for diff in diffs:
        Path(diff["path"]).write_text(diff["newText"])
    text = f"Files changed: {len(diffs)}."
    return {"content": [{"type": "text", "text": text}], "_meta": {"toolcrib": {"diffs": diffs}}}


# -- the agent --------------------------------------------------------------------------------------------------------


class Watched(WrapperModel):
    """A model that records which tools each request had."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.sent: list[list[str]] = []

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        self.sent.append([tool.name for tool in model_request_parameters.function_tools])
        asked = super().request_stream(messages, model_settings, model_request_parameters, run_context)
        async with asked as stream:
            yield stream


@asynccontextmanager
async def connected(editor: FakeAcpClient, model: Model) -> AsyncGenerator[None]:
    """Connect the editor to a new agent at the other end of the stream."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The policy of `toolcrib acp`: a person is asked about every call that is not known to only read.
        async with Toolcrib(policy=CAREFUL) as crib:
            await serve_streams(Setup(crib, model), reader, writer)

    async with editor.connected_to(serve):
        await editor.initialize()
        yield


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """Return a turn in which the model calls one tool."""
    return {"calls": [{"name": name, "arguments": arguments}]}


# -- the ladder -------------------------------------------------------------------------------------------------------


async def rung(title: str, editor: FakeAcpClient, *sources: str) -> None:
    """Print what the agent finds in an editor, and what a model gets that searches in `sources`."""
    looks = [call("find_tools", category=[source], limit=20) for source in sources]
    model = Watched(scripted_model([call("list"), *looks, {"text": "I have looked."}]))
    with tempfile.TemporaryDirectory() as folder:
        async with connected(editor, model):
            turn = await editor.prompt(await editor.new_session(folder), "What can you do here?")
    print(f"\n{title}")
    say("the editor was asked", ", ".join(dict.fromkeys(editor.asked)) or "nothing")
    say("the model was sent", ", ".join(model.sent[0]))
    answers: list[Any] = [called.raw_output for called in turn.tool_calls.values()]
    top, *found = answers
    for node in top["nodes"]:
        say("list shows", f"{node['name']} ({node['tool_count']}): {node['summary']}")
    for source, page in zip(sources, found, strict=True):
        say(f"find_tools in {source}", ", ".join(pointer["tool_id"] for pointer in page["results"]))


async def ladder() -> None:
    await rung("An editor that lists its own tools", FakeAcpClient(terminal=True, tools=CATALOG.tools), "editor")
    await rung("An editor that has only files", FakeAcpClient(read_text_file=True, write_text_file=True), "editor")
    await rung("An editor that offers nothing: the agent's own tools", FakeAcpClient(), "local")
    served = {"inspections": {"count_warnings": McpTool({"warnings": 3}, "Count the warnings of a file.")}}
    with_server = FakeAcpClient(read_text_file=True, mcp_servers=served)
    await rung("An editor with files and an MCP server", with_server, "editor", "inspections")


# -- one rename -------------------------------------------------------------------------------------------------------

RENAMING: Sequence[Mapping[str, Any]] = (
    call("find_tools", query="rename a symbol"),
    call("expand_tool", tool_ids=["editor.rename_symbol"]),
    call("rename_symbol", old_name="saw", new_name="blade"),
    {"text": "It is called blade now."},
)


async def renaming() -> None:
    """Rename a symbol with the editor's own tool, after the person has allowed it."""

    def person(asked: PermissionAsked) -> Choice:
        say("the person is asked", f"{asked.tool_call.title}, which is of the kind {asked.tool_call.kind}")
        diffs = [content for content in asked.tool_call.content or () if isinstance(content, FileEditToolCallContent)]
        say("shown what would change", ", ".join(Path(diff.path).name for diff in diffs))
        say("and answers", "allow once")
        return "allow_once"

    print("\nA rename")
    with tempfile.TemporaryDirectory() as folder:
        bench = Path(folder) / "bench.py"
        bench.write_text(BEFORE)
        answers = {"rename_symbol": partial(rename_in, bench.parent)}
        previews = {"rename_symbol": partial(preview_in, bench.parent)}
        editor = FakeAcpClient(tools=CATALOG.tools, answers=answers, previews=previews, permission=person)
        model = Watched(scripted_model(RENAMING))
        async with connected(editor, model):
            turn = await editor.prompt(await editor.new_session(folder), "Call the saw a blade.")
        for called in turn.tool_calls.values():
            say("the model called", f"{called.title}: {called.status}")
        say("it had at last", ", ".join(model.sent[-1]))
        say("the editor ran", ", ".join(each.name for each in editor.tools_called))
        say("bench.py begins", bench.read_text().splitlines()[0])
        say("the model said", turn.text)
        say("the prompt ended with", turn.stop_reason)


# -- by hand ----------------------------------------------------------------------------------------------------------


async def by_hand() -> None:
    """Read descriptors, query a catalog, and make a toolset of exactly its tools."""
    print("\nBy hand")
    answers = {"find_usages": "It is used in bench.py."}
    editor: Any = FakeAcpClient(tools=[*CATALOG.tools, {"name": "odd", "parameters": "none"}], answers=answers)
    client = EditorPort(editor, offer_of(editor.capabilities))
    catalog, ignored = ToolCatalog.from_wire(await client.discover_tools("session"))
    found = catalog.by_name("find_usages")
    say("by_name", repr(found.description if found else None))
    say("by_kind edit", ", ".join(each.name for each in catalog.by_kind("edit")))
    say("by_category refactoring", ", ".join(each.name for each in catalog.by_category("refactoring")))
    say("ignored", ", ".join(f"{each.name}: {each.reason}" for each in ignored))
    model = TestModel(call_tools=["find_usages"])
    toolset = create_toolset_from_catalog(catalog, client, "session", cwd="/project")
    run = await create_pydantic_agent(model, toolset).run("Where is it used?")
    sent = model.last_model_request_parameters
    say("the model was sent", ", ".join(tool.name for tool in sent.function_tools) if sent else "nothing")
    say("and was answered", str(run.output))


def say(what: str, how: str) -> None:
    print(f"  {what:<28}{how}")


async def main() -> None:
    await ladder()
    await renaming()
    await by_hand()


if __name__ == "__main__":
    anyio.run(main)
