"""Tests that code in the documentation runs, lists are complete, and links have targets."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import fields as dataclass_fields
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any, get_args

import anyio
import pytest
from pydantic_ai.models.test import TestModel
from tests.docs.generate import PARTS, SCHEMA_FILE, generated, schema_file
from tests.sources.acp.editing import DISCOVERING, SESSION, Editor, descriptor

import toolcrib
from toolcrib.adapters import ADAPTERS
from toolcrib.adapters.scripted import ScriptedAdapter
from toolcrib.agent.conversation.events import ConversationEvent
from toolcrib.config import Config, parse_config
from toolcrib.config.registration_store import RegistrationStore
from toolcrib.config.registrations import document, joined, read_document
from toolcrib.core.errors import InvalidArguments
from toolcrib.definitions.drift import PinPolicy, Verdict
from toolcrib.search.embedders import ModelEndpoint, ModelFolder
from toolcrib.search.embedders.download import Manifest
from toolcrib.search.embedders.pinned_models import GAIN, MODELS
from toolcrib.sources.acp.port import ClientOffer
from toolcrib.testing.vendors.anthropic_server import AnthropicServer
from toolcrib.testing.vendors.openai_server import OpenAIServer
from toolcrib.testing.vendors.server import Call, Recorded, Turn

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FILES = ClientOffer(read_text_file=True, write_text_file=True)
FAULTY = ROOT / "tests" / "servers" / "faulty.py"

EXAMPLE_STEPS = ["list", "list", "search_tool_by_category", "expand_tool", "call_tool", "call_tool", "changed"]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def test_the_readme_shows_the_example_files_unchanged() -> None:
    shown = blocks(ROOT / "README.md", "python")
    assert shown == [(ROOT / "examples" / name).read_text() for name in ("library.py", "loop.py")]


def test_the_library_example_finds_expands_and_calls_a_tool(tmp_path: Path) -> None:
    servers = {"faulty": {"command": sys.executable, "args": [str(FAULTY)]}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    example = ROOT / "examples" / "library.py"
    done = subprocess.run(
        [sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.startswith("functions.loan_fee {")
    assert second == "{'result': 4.5}"


@pytest.mark.holds("interaction.five-steps", "operations.every-way")
def test_the_protocol_example_renames_a_symbol_over_python_mcp_and_http() -> None:
    example = ROOT / "examples" / "rename_symbol.py"
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for way in ("Python", "MCP", "HTTP"):
        steps = done.stdout.partition(f"{way}:\n")[2].splitlines()[:7]
        assert [step.split()[0] for step in steps] == EXAMPLE_STEPS
        assert steps[-1].strip() == "changed files: 2"


def test_the_loop_example_runs_in_any_folder(tmp_path: Path) -> None:
    _, loop = blocks(ROOT / "README.md", "python")
    (tmp_path / "loop.py").write_text(loop)
    words = [sys.executable, "loop.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("4.5\n", "")


def test_the_readme_lists_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    table = (ROOT / "README.md").read_text().partition("| Extra | For |")[2].partition("## ")[0]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    named = {*re.findall(r"`([a-z-]+)`", " ".join(rows))}
    assert named == {*extras}


@pytest.mark.slow
def test_the_editor_example_shows_each_way_to_offer_tools() -> None:
    words = [sys.executable, "examples/acp_tool_discovery.py"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    *rungs, rename, by_hand = (part.splitlines() for part in done.stdout.strip().split("\n\n"))
    shown = [[line.split(maxsplit=3)[3] for line in rung if line.startswith("  find_tools in")] for rung in rungs]
    assert shown == [
        ["editor.find_usages, editor.rename_symbol"],
        ["editor.read_file, editor.write_file"],
        ["local.find_files, local.read_file, local.search_text"],
        ["editor.read_file", "inspections.count_warnings"],
    ]
    assert {line.split()[-1] for rung in rungs for line in rung if "the model was sent" in line} == {"update_plan"}
    asked = next(at for at, line in enumerate(rename) if "the person is asked" in line)
    assert "rename_symbol" in rename[asked]
    assert next(line for line in rename if "bench.py begins" in line).endswith("def blade():")
    assert any("the model was sent" in line and line.endswith("rename_symbol, find_usages") for line in by_hand)


def test_the_library_example_stays_under_twenty_lines() -> None:
    code = (ROOT / "examples" / "library.py").read_text()
    body = code[code.index("async def main") :]
    assert len([line for line in body.splitlines() if line.strip()]) < 20


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_python_on_a_page_compiles_and_its_imports_exist(path: Path) -> None:
    for code in blocks(path, "python"):
        compile(code, str(path), "exec")
        for line in code.splitlines():
            if line.startswith(("import ", "from ")):
                exec(line, {})


@pytest.mark.parametrize("path", [*PAGES, *sorted((ROOT / "examples").glob("*.py"))], ids=lambda path: path.name)
def test_examples_import_exported_names_from_toolcrib(path: Path) -> None:
    codes = blocks(path, "python") if path.suffix == ".md" else [path.read_text()]
    imports = [node for code in codes for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    inner = {name.name for node in imports if (node.module or "").startswith("toolcrib.") for name in node.names}
    assert not inner & set(toolcrib.__all__)


def test_types_that_users_implement_are_exported() -> None:
    named = {"Policy", "Permissions", "Subject", "Recorder", "OperationPerformed"}
    assert named <= set(toolcrib.__all__)
    for name in toolcrib.__all__:
        assert getattr(toolcrib, name) is not None


def test_the_readme_links_to_every_page() -> None:
    linked = set(re.findall(r"\(docs/([a-z-]+\.md)", (ROOT / "README.md").read_text()))
    assert linked == {path.name for path in (ROOT / "docs").glob("*.md")}


def test_the_dependencies_page_names_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = [project["project"]["dependencies"], *project["project"]["optional-dependencies"].values()]
    groups += project["dependency-groups"].values()
    named = {re.split(r"[^a-z0-9-]", each)[0] for group in groups for each in group}
    assert not [name for name in sorted(named) if f"`{name}" not in page("dependencies.md")]


@pytest.mark.anyio
async def test_the_check_on_the_sources_page_passes() -> None:
    code = next(block for block in blocks(ROOT / "docs" / "sources.md", "python") if "check_source" in block)
    namespace: dict[str, object] = {}
    exec(code, namespace)
    await namespace["check"]()  # type: ignore[operator]  # pyright: ignore


def test_the_prompt_text_page_shows_the_output_of_its_code() -> None:
    (code,) = blocks(ROOT / "docs" / "prompt-text.md", "python")
    (shown,) = blocks(ROOT / "docs" / "prompt-text.md", "text")
    namespace: dict[str, object] = {}
    exec(code, namespace)
    assert namespace["text"] == shown


@pytest.mark.anyio
async def test_the_capabilities_page_example_reports_missing_capabilities_with_remedies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (code,) = blocks(ROOT / "docs" / "capabilities.md", "python")
    namespace: dict[str, object] = {}
    exec(code, namespace)
    crib = namespace["crib"]
    assert isinstance(crib, toolcrib.Toolcrib)
    async with crib:
        assert await crib.ready(60)
        assert crib.view().lacking == {
            "functions.build": "It needs `docker`: its program is not on the PATH. Install Docker. "
            "It needs `room`: the disk is full. Delete old images."
        }
    (shown,) = blocks(ROOT / "docs" / "capabilities.md", "json")
    config = parse_config(shown, Path("mcp.json"), {})
    assert [each.name for each in config.capabilities] == ["docker", "registry", "database"]


def test_the_embeddings_page_shows_valid_models_and_manifest(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    fetched, folder, manifest, endpoint = (json.loads(text) for text in blocks(ROOT / "docs" / "embeddings.md", "json"))
    read = [
        parse_config(json.dumps(each), path, {"OPENAI_API_KEY": "key"}).search.embedder
        for each in (fetched, folder, endpoint)
    ]
    assert [type(each.model) for each in read if each is not None] == [ModelFolder, ModelFolder, ModelEndpoint]
    path.write_text(json.dumps(manifest))
    assert [each.name for each in Manifest.read(path).files] == ["model.onnx", "tokenizer.json"]


def test_the_gain_of_minilm_is_the_measured_one_wherever_it_is_told() -> None:
    ranking, everyday = re.findall(
        r"<!-- measured: (?:ranking|everyday) -->\n(.*?)<!-- end -->", page("search.md"), re.DOTALL
    )

    def mean(table: str, name: str, column: int) -> str:
        (row,) = re.findall(rf"^\| {name} \|(.*)\|$", table, re.MULTILINE)
        return row.split("|")[column].strip()

    before, after = mean(ranking, "Toolcrib", -1), mean(ranking, "Toolcrib with MiniLM", -1)
    assert f"from {before} to {after}" in GAIN
    assert f"[nDCG@10 of {after} instead of {before}]" in page("embeddings.md")
    before, after = mean(everyday, "Toolcrib", 0), mean(everyday, "Toolcrib with MiniLM", 0)
    assert f"[{after} instead of {before}]" in page("embeddings.md")


def test_the_embeddings_page_lists_every_model_that_can_be_fetched_by_name() -> None:
    rows = re.findall(r"^\| `(\S+)` \| (\d+) MB \| (\S+) \|", page("embeddings.md"), re.MULTILINE)
    assert rows == [(name, f"{each.size / 1e6:.0f}", each.license) for name, each in MODELS.items()]


def test_the_evaluation_page_shows_the_queries_of_the_example() -> None:
    (shown,) = blocks(ROOT / "docs" / "evaluation.md", "jsonl")
    assert shown == (ROOT / "examples" / "evaluation" / "queries.jsonl").read_text()


def test_the_drift_page_shows_the_output_of_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks(ROOT / "docs" / "drift.md", "python")
    exec(code, {})
    assert f"```\n{capsys.readouterr().out}```" in page("drift.md")


def test_the_registry_page_examples_give_the_documented_results() -> None:
    (code,) = blocks(ROOT / "docs" / "registry.md", "python")
    namespace: dict[str, object] = {}
    exec(code, namespace)
    assert repr(namespace["told"]).replace("'", '"') in page("registry.md")
    assert namespace["required"] == namespace["in_vcs"] == ["functions.commit"]
    crib = namespace["crib"]
    assert isinstance(crib, toolcrib.Toolcrib)
    assert [pointer.tool_id for pointer in crib.search_tools("small").results] == ["functions.echo"]
    (shown,) = blocks(ROOT / "docs" / "registry.md", "json")
    config = parse_config(shown, Path("mcp.json"), {})
    assert [each.tools for each in config.overrides.given] == ["git.*", "git.git_commit", "git.git_reset"]


@pytest.mark.anyio
async def test_tools_can_be_called_after_each_migration_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before, register, call, function, bundle, listener = blocks(ROOT / "docs" / "migrating.md", "python")
    shown: dict[str, Any] = {}
    exec(before, shown)
    given = {"action": "read", "path": "a"}
    assert shown["call"]("file", given) == "read: a"
    for step in (register, call):
        exec(step, shown)
    assert [tool.id for tool in shown["crib"].registry.list()] == ["functions.clock", "functions.file"]
    assert await shown["call_tool"]("file", given) == "read: a"
    with pytest.raises(InvalidArguments):
        await shown["call_tool"]("file", {"action": "burn", "path": "a"})
    assert await shown["call_tool"]("clock", {"any": "thing"}) == "12:00"

    exec(function, shown)
    assert await shown["call_tool"]("file", given) == shown["file"](**given) == "read: a"
    exec(bundle, shown)
    assert shown["found"] == ["functions.file"]
    assert [tool.id for tool in shown["session"].resolve().required] == ["functions.file"]
    exec(listener, shown)
    shown["crib"].remove("functions.clock")
    assert capsys.readouterr().out == "gone: functions.clock\n"


def test_the_discovery_plugin_example_finds_and_calls_a_tool() -> None:
    (code,) = blocks(ROOT / "docs" / "discovery-plugin.md", "python")
    (shown,) = blocks(ROOT / "docs" / "discovery-plugin.md", "json")
    namespace: dict[str, object] = {}
    exec(code, namespace)
    assert namespace["told"] == [shown.strip(), "functions.file_bug", "filed: It squeaks"]


def test_the_bundles_page_examples_give_the_documented_results() -> None:
    (code,) = blocks(ROOT / "docs" / "bundles.md", "python")
    namespace: dict[str, object] = {}
    exec(code, namespace)
    assert namespace["required"] == namespace["found"] == ["functions.git_log"]
    (shown,) = blocks(ROOT / "docs" / "bundles.md", "json")
    config = parse_config(shown, Path("mcp.json"), {})
    assert [bundle.name for bundle in config.bundles] == ["coding", "reading"]


def test_the_registrations_page_examples_store_and_import_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept, check = blocks(ROOT / "docs" / "registrations.md", "python")
    exec(kept, {})
    store = RegistrationStore(tmp_path / "registrations.sqlite")
    assert [row.name for row in store.all()] == ["ops.disk_free"]
    namespace: dict[str, Callable[[], None]] = {}
    exec(check, namespace)
    namespace["check"]()
    (shown,) = blocks(ROOT / "docs" / "registrations.md", "json")
    rows = read_document(shown, Path("registered.json"))
    assert document(rows) == (json.loads(shown), ())
    assert joined(Config(Path("mcp.json")), rows).passed_over == ()


def test_the_sections_page_shows_the_output_of_its_code() -> None:
    code, rule = blocks(ROOT / "docs" / "sections.md", "python")
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    rendered, read, opened = namespace["rendered"], namespace["read"], namespace["opened"]
    assert [rendered.text + "\n", read.value.content + "\n"] == blocks(ROOT / "docs" / "sections.md", "text")
    assert (rendered.tools, rendered.summarized) == ((), (("sources",),))
    assert opened.text.endswith(read.value.content)
    assert opened.tools == read.value.expanded_tools
    assert [each.tool for each in read.value.expanded_tools] == ["archive.search", namespace["cite"]]
    exec(rule, {"Paper": make_dataclass("Paper", [("pages", int)], frozen=True)})


def test_the_pins_page_examples_give_the_documented_results() -> None:
    (code,) = blocks(ROOT / "docs" / "pins.md", "python")
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    assert namespace["results"] == {(namespace["crib"].tool_of(namespace["fee"]).handle, "{}"): "4.50"}
    (shown,) = blocks(ROOT / "docs" / "pins.md", "json")
    assert parse_config(shown, Path("mcp.json"), {}).pins == PinPolicy(unpinned=Verdict.QUARANTINE)


def test_the_loops_page_examples_answer_and_resume() -> None:
    code, names, going_on = blocks(ROOT / "docs" / "loops.md", "python")
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    assert f"`{namespace['quote']}`".replace("'", '"') in page("loops.md")
    adapter = namespace["adapter"]
    assert [[tool.name for tool in request.tools] for request in adapter.requests] == [
        ["read_section"],
        ["read_section", "loan_fee"],
        ["read_section", "loan_fee"],
    ]
    assert {name.partition(":")[0] for name in re.findall(r'get_adapter\("(.*?)"', names)} <= set(ADAPTERS)
    exec(going_on, namespace)
    prompt = toolcrib.PromptTemplate[str]("a", "b", [toolcrib.MarkdownSection("A", "a", "B.")]).bind()

    async def twice() -> str:
        async with toolcrib.Toolcrib() as crib:
            session, answering = crib.session(), ScriptedAdapter([{"text": "Once."}, {"text": "Twice."}])
            await toolcrib.MainLoop().execute(prompt, session=session, adapter=answering, request="And?")
            again = await namespace["resumed"](crib, session.to_json(), prompt, answering)
            return again.to_json()

    assert [message["text"] for message in json.loads(anyio.run(twice))["messages"]] == [
        "And?",
        "Once.",
        "And for a week?",
        "Twice.",
    ]


def test_the_loops_page_lists_every_adapter_delivery_budget_and_event() -> None:
    named = re.findall(r"^\| `(\w[\w-]*)", page("loops.md"), re.MULTILINE)
    fields = [field.name for field in dataclass_fields(toolcrib.InnerLoopConfig)]
    events = [event.__name__ for event in get_args(ConversationEvent)]
    deliveries = [delivery.name for delivery in toolcrib.Delivery]
    assert {*fields, *events, *deliveries, *ADAPTERS} <= set(named)


@pytest.mark.anyio
async def test_the_pydantic_ai_examples_search_expand_call_and_ask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    example, searching, approval, inline, *_ = blocks(ROOT / "docs" / "pydantic-ai.md", "python")
    shown: dict[str, Any] = {}
    exec(example, shown)
    assert f"`{await shown['ask']('What is the fee for three days?')}`" in page("pydantic-ai.md")

    def calling(name: str, **given: Any) -> Any:
        """Returns a model that calls a tool once and answers with its result."""

        def played(messages: list[Any], info: object) -> Any:
            *_, last = messages[-1].parts
            answered = last.part_kind == "tool-return"
            part = shown["TextPart"](str(last.content)) if answered else shown["ToolCallPart"](name, given)
            return shown["ModelResponse"]([part])

        return shown["FunctionModel"](played)

    asked: list[str] = []

    def say_yes(question: str) -> str:
        asked.append(question)
        return "yes"

    monkeypatch.setattr("builtins.input", say_yes)
    crib = toolcrib.Toolcrib()
    crib.add(shown["loan_fee"])
    async with crib:
        exec(searching, shown)
        agent = shown["searching"](crib.session(), calling("search_tools", queries=["borrow a tool"]))
        assert "functions__loan_fee" in (await agent.run("Go")).output
    exec(approval, shown)
    crib = shown["crib"]
    crib.add(shown["loan_fee"])
    async with crib:
        handle = crib.expand_tool("functions.loan_fee").handle
        model = calling("call_tool", tool_id=handle, arguments={"days": 2})
        assert await shown["ask_first"](crib.session(), model) == "3.0"
        exec(inline, shown)
        toolset = shown["asking_at_once"](crib.session())
        assert (await shown["create_pydantic_agent"](model, toolset).run("Go")).output == "3.0"
    assert ["functions.loan_fee" in question for question in asked] == [True, True]


@pytest.mark.anyio
async def test_the_pydantic_ai_editor_and_script_examples_run() -> None:
    *_, editors, scripted = blocks(ROOT / "docs" / "pydantic-ai.md", "python")
    shown: dict[str, Any] = {}
    exec(editors, shown)
    catalog = {"tools": [descriptor("find_uses", "search"), descriptor("run_command")]}
    for offer, offered in (DISCOVERING, ["find_uses", "run_command"]), (FILES, ["read_file", "write_file"]):
        model = TestModel(call_tools=[])
        agent = await shown["editing"](Editor(offer, catalog), SESSION, "/project", model)
        await agent.run("Go")
        parameters = model.last_model_request_parameters
        assert parameters is not None
        assert [each.name for each in parameters.function_tools] == offered
    exec(scripted, shown)
    async with toolcrib.Toolcrib() as crib:
        agent = shown["rehearsing"](crib.session())
        first = await agent.run("Go")
        second = await agent.run("Thanks.", message_history=first.all_messages())
    assert (first.output, second.output) == ("There is one.", "At your service.")


@pytest.mark.anyio
async def test_the_own_loop_examples_work_with_real_sdks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import anthropic

    loop, turn, choice = blocks(ROOT / "docs" / "own-loop.md", "python")
    assert len([line for line in loop.splitlines() if line.strip()]) < 30
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    chat: dict[str, Any] = {}
    exec(loop, chat)

    def model(request: Recorded) -> Turn:
        told = [json.loads(each["content"]) for each in request.content["messages"] if each["role"] == "tool"]
        match told:
            case []:
                return Turn(calls=(Call("search_tools", '{"query": "borrow"}'),))
            case [found]:
                return Turn(calls=(Call("expand_tool", json.dumps({"tool_id": found["results"][0]["tool_id"]})),))
            case [_, tool]:
                called = {"tool_id": tool["handle"], "arguments": {"days": 3}}
                return Turn(calls=(Call("call_tool", json.dumps(called)),))
            case _:
                return Turn(f"It costs {told[-1]}.")

    async with OpenAIServer(model) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        assert await chat["ask"]("What is the fee for three days?") == "It costs 4.5."
        assert len({json.dumps(request.content["tools"]) for request in server.requests}) == 1
    blockwise: dict[str, Any] = {}
    exec(turn, blockwise)
    messages: list[Any] = [{"role": "user", "content": "What is there?"}]
    script = Turn("I look.", calls=(Call("list"),)), Turn("Nothing.")
    async with AnthropicServer(script) as server, anthropic.AsyncAnthropic(base_url=server.url, api_key="none") as sdk:
        session = toolcrib.Toolcrib().session()
        assert await blockwise["turn"](sdk, session, messages)
        assert not await blockwise["turn"](sdk, session, messages)
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
    given: dict[str, Any] = {}
    exec(choice, given)
    assert given["compact"] == ["list", "search_tools", "expand_tool", "call_tool"]
    assert (given["besides"], given["alone"]) == ([*given["compact"], "functions__reverse"], ["functions__reverse"])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_json_on_a_page_parses(path: Path) -> None:
    for text in blocks(path, "json"):
        json.loads(text)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_on_a_page_point_to_existing_files(path: Path) -> None:
    words = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)  # `Kind[Of](...)` in code is not a link
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", words):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md", "docs/search.md", "docs/dependencies.md"])
def test_modules_that_a_page_names_exist(name: str) -> None:
    named = set(
        re.findall(r"`(?:src/toolcrib/)?((?:[a-z_]+/)+[a-z_]+\.py|[a-z][a-z_]*\.py)`", (ROOT / name).read_text())
    )
    source = ROOT / "src" / "toolcrib"
    there = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    there |= {path.rpartition("/")[2] for path in there}
    for folder in ("tests", "benchmarks", "examples"):
        there |= {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*.py")}
    assert named - there == set()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_generated_parts_of_a_page_are_up_to_date(path: Path) -> None:
    assert generated(path.read_text()) == path.read_text(), "`make docs` writes it anew"


def test_every_generated_part_is_used_on_a_page() -> None:
    shown = {name for path in PAGES for name in re.findall("<!-- generated: (.*) -->", path.read_text())}
    assert shown == PARTS.keys()


def test_the_published_schema_matches_the_code() -> None:
    assert SCHEMA_FILE.read_text() == schema_file(), "`make docs` writes it anew"


def test_the_documented_configurations_are_valid() -> None:
    (shown,) = blocks(ROOT / "docs" / "configuration.md", "json")
    config = parse_config(shown, Path("mcp.json"), {"TRACKER_TOKEN": "t"})
    assert [server.problem for server in config.servers] == [None, None, None]
    (audited,) = [text for text in blocks(ROOT / "docs" / "audit.md", "json") if "mcpServers" in text]
    assert parse_config(audited, Path("mcp.json"), {}).audit is not None
    assert parse_config((ROOT / "examples" / "mcp.json").read_text(), Path("mcp.json"), {}).enabled
