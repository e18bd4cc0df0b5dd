"""Python functions as tools: their schemas, their arguments and their results."""

from __future__ import annotations

import contextvars
import functools
import gc
import inspect
import keyword
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional
from uuid import UUID

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from toolcrib.core.errors import InvalidArguments, InvalidTool, SourceUnavailable, ToolFailed
from toolcrib.core.metadata import ToolMetadata
from toolcrib.core.principal import CallContext, Principal
from toolcrib.core.results import ToolResult
from toolcrib.core.schema import Schema
from toolcrib.core.tools import Tool, ToolAnnotations
from toolcrib.sources.functions import FunctionSource

if TYPE_CHECKING:
    from decimal import Decimal

    from toolcrib.sources.base import ProgressListener

pytestmark = pytest.mark.anyio


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Label(TypedDict, total=False):
    text: str


class Node(BaseModel):
    when: datetime
    children: list[Node] = []


class Opaque:
    """A type that has no JSON Schema."""

    def __str__(self) -> str:
        return "opaque"


async def call(fn: Callable[..., Any], /, **arguments: Any) -> ToolResult:
    source = FunctionSource()
    tool = source.add(fn, name="tool")
    assert tool.arguments.violations(arguments) == ()
    return await source.call_tool(tool, arguments, CallContext())


def schema_of(fn: Callable[..., Any]) -> dict[str, Any]:
    return dict(FunctionSource().add(fn, name="tool").input_schema)


def properties_of(fn: Callable[..., Any]) -> dict[str, Any]:
    return schema_of(fn)["properties"]


def test_a_signature_and_a_docstring_make_a_complete_tool() -> None:
    def book(room: str, guests: Annotated[int, Field(ge=1, le=8)], *, quiet: bool = False) -> Point:
        """Book a room.

        Rooms are free until somebody books them.

        Args:
            room: Its name,
                as on the door.
            guests: How many come.
            quiet (bool): Away from the street.

        Returns:
            Where it is.

        Raises:
            ValueError: It is taken.
        """
        return Point(len(room), guests + quiet)

    source = FunctionSource("hotel")
    tool = source.add(book, metadata=ToolMetadata(tags=("rooms",)), annotations=ToolAnnotations(title="Book it"))
    assert tool == Tool(
        "hotel",
        "book",
        "Book a room.\n\nRooms are free until somebody books them.",
        {
            "type": "object",
            "properties": {
                "room": {"type": "string", "description": "Its name, as on the door."},
                "guests": {"type": "integer", "minimum": 1, "maximum": 8, "description": "How many come."},
                "quiet": {"type": "boolean", "default": False, "description": "Away from the street."},
            },
            "required": ["room", "guests"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
            "required": ["x"],
        },
        title="Book it",
        annotations=ToolAnnotations(title="Book it"),
        metadata=ToolMetadata(tags=("rooms",)),
    )


def numpy_style(a: int, b: int) -> None:
    """Add up.

    Parameters
    ----------
    a, b : int
        What to add.

    Returns
    -------
    None
    """


def rest_style(a: int, b: int) -> None:
    """Add up.

    :param a: What to add.
    :param int b: What to add.
    :returns: nothing
    """


def google_style(a: int, b: int) -> None:
    """Add up.

    Args:
        a: What to add.
        b: What to add.
    """


@pytest.mark.parametrize("fn", [numpy_style, rest_style, google_style])
def test_google_numpy_and_rest_docstrings_give_the_same_descriptions(fn: Callable[..., Any]) -> None:
    assert FunctionSource().add(fn).description == "Add up."
    assert [said["description"] for said in properties_of(fn).values()] == ["What to add.", "What to add."]


def test_a_docstring_without_sections_is_used_whole_as_the_description() -> None:
    def opening(path: str) -> None:
        """Open a database.

        :memory: opens one that is not kept.
        Note: what is open stays open.
        """

    description = FunctionSource().add(opening).description
    assert description.splitlines()[2:] == [":memory: opens one that is not kept.", "Note: what is open stays open."]


def test_a_description_in_an_annotation_overrides_the_docstring() -> None:
    def ask(a: Annotated[int, "from a text"], b: Annotated[int, Field(description="from a field")], c: int) -> None:
        """Ask.

        Args:
            a: no
            b: no
            c: from the docstring
        """

    assert [said["description"] for said in properties_of(ask).values()] == [
        "from a text",
        "from a field",
        "from the docstring",
    ]


async def test_arguments_are_converted_to_the_annotated_types() -> None:
    received: list[Any] = []

    def take(  # noqa: PLR0917
        number: int,
        /,
        kind: Literal["a", "b"],
        colour: Colour,
        point: Point,
        label: Label,
        node: Node,
        when: date | None,
        uuid: UUID,
        path: Path,
        names: set[str],
        pair: tuple[int, str],
        by_number: dict[int, list[Point]],
        *,
        model_config: int = 1,
        _hidden: Optional[str] = None,  # noqa: UP045
        limit: int = Field(5, ge=1),
        renamed: Annotated[int, Field(alias="class")] = 0,
        implicit: str = None,  # noqa: RUF013  # pyright: ignore[reportArgumentType]
    ) -> None:
        received.extend([number, kind, colour, point, label, node, when, uuid, path, names, pair, by_number])
        received.extend([model_config, _hidden, limit, renamed, implicit])

    uuid = UUID(int=7)
    await call(
        take,
        number=1,
        kind="b",
        colour="red",
        point={"x": 1},
        label={"text": "t"},
        node={"when": "2024-01-02T03:04:05", "children": [{"when": "2024-01-02T03:04:05"}]},
        when="2024-02-29",
        uuid=str(uuid),
        path="a/b",
        names=["n"],
        pair=[1, "one"],
        by_number={"3": [{"x": 1, "y": 2}]},
        **{"model_config": 2, "class": 3, "implicit": None},
    )
    moment = datetime(2024, 1, 2, 3, 4, 5)  # noqa: DTZ001
    assert received == [
        1,
        "b",
        Colour.RED,
        Point(1, 0),
        {"text": "t"},
        Node(when=moment, children=[Node(when=moment)]),
        date(2024, 2, 29),
        uuid,
        Path("a/b"),
        {"n"},
        (1, "one"),
        {3: [Point(1, 2)]},
        2,
        None,
        5,
        3,
        None,
    ]


async def test_an_omitted_argument_gets_the_default_of_the_function() -> None:
    unset = object()

    def seen(a: int = 1, /, b: Any = unset) -> bool:
        return a == 1 and b is unset

    assert properties_of(seen) == {"a": {"type": "integer", "default": 1}, "b": {}}
    assert (await call(seen)).text == "true"


async def test_a_value_that_matches_the_schema_but_not_the_type_is_reported_with_its_path() -> None:
    def plan(days: list[date | int], node: Node) -> None:
        raise AssertionError("must not run")

    with pytest.raises(InvalidArguments) as refused:
        await call(plan, days=["2024-01-01", "2024-02-31"], node={"when": "now"})
    violations = refused.value.details["violations"]
    assert {violation["place"] for violation in violations} == {"/days/1", "/node/when"}
    assert "`/node/when`" in refused.value.message


async def test_call_context_and_progress_are_filled_in_and_not_in_the_schema() -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async def slow(ctx: CallContext, steps: int, report: ProgressListener) -> str:
        await report(1, steps, "async")
        return ctx.principal.id

    def slow_in_a_thread(steps: int, *, ctx: CallContext | None = None, report: ProgressListener | None = None) -> str:
        assert ctx is not None
        assert report is not None
        report(1, steps, "thread")  # pyright: ignore[reportUnusedCoroutine]
        return ctx.principal.id

    source = FunctionSource()
    for fn in (slow, slow_in_a_thread):
        tool = source.add(fn)
        assert list(tool.input_schema["properties"]) == ["steps"]
        context = CallContext(Principal("ada"))
        result = await source.call_tool(tool, {"steps": 2}, context, progress=hear)
        assert result.text == "ada"
        silent = await source.call_tool(tool, {"steps": 2}, context)
        assert silent.text == "ada"
    assert heard == [(1, 2, "async"), (1, 2, "thread")]


async def test_extra_keywords_are_additional_properties_and_cannot_set_the_context() -> None:
    def tag(name: str, *, ctx: CallContext, **more: int) -> dict[str, Any]:
        return {"name": name, "principal": ctx.principal.id, **more}

    assert schema_of(tag)["additionalProperties"] == {"type": "integer"}
    assert (await call(tag, name="n", a0=1)).structured_content == {"name": "n", "principal": "local", "a0": 1}
    with pytest.raises(InvalidArguments, match="unknown key `ctx`"):
        await call(tag, name="n", ctx=1)


async def test_arguments_bound_by_a_partial_are_neither_shown_nor_changeable() -> None:
    def fetch(key: str, path: str, retries: int, **more: Any) -> str:
        return f"{key} {path} {retries} {more}"

    bound = functools.partial(fetch, "secret", retries=3)
    assert properties_of(bound) == {"path": {"type": "string"}}
    assert (await call(bound, path="/")).text == "secret / 3 {}"
    with pytest.raises(InvalidArguments, match="unknown key `retries`"):
        await call(bound, path="/", retries=4)


class Counter:
    """Counts."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, by: int = 1) -> int:
        """Add up."""
        self.count += by
        return self.count

    async def __call__(self, by: int) -> int:
        return self.add(by)


async def test_bound_methods_callable_objects_and_lambdas_can_be_tools() -> None:
    counter = Counter()
    source = FunctionSource()
    tools = [source.add(counter.add), source.add(counter), source.add(lambda: counter.add(), name="lambda")]
    assert [(tool.name, tool.description) for tool in tools] == [
        ("add", "Add up."),
        ("Counter", "Counts."),
        ("lambda", ""),
    ]
    results = [
        await source.call_tool(tool, {"by": 1} if tool.name != "lambda" else {}, CallContext()) for tool in tools
    ]
    assert [result.text for result in results] == ["1", "2", "3"]


async def test_a_plain_function_may_return_a_coroutine() -> None:
    counter = Counter()

    def later(by: int) -> Awaitable[int]:
        return counter(by)

    result = await call(later, by=2)
    assert (result.text, result.structured_content) == ("2", {"result": 2})


def star(*numbers: int) -> None: ...
def forgotten(amount: Decimal) -> None: ...
def opaque(it: Opaque) -> None: ...
def callback(then: Callable[[int], int]) -> None: ...
def generator() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (star, r"`star` takes `\*numbers`"),
        (forgotten, "`forgotten` has an annotation that cannot be resolved: name 'Decimal' is not defined"),
        (opaque, "`opaque` has a parameter whose type has no JSON Schema: .*Opaque"),
        (callback, "`callback` has a parameter whose type has no JSON Schema"),
        (generator, "`generator` is a generator"),
        (Counter, "`Counter` is a class"),
        (Counter.add, "`add` is not bound to an instance"),
        (max, "`max` has no readable signature"),
        (lambda: None, "has no name"),
        (3, "is not callable"),
    ],
)
def test_a_callable_that_cannot_be_a_tool_is_refused_with_the_reason(fn: Any, reason: str) -> None:
    with pytest.raises(InvalidTool, match=reason):
        FunctionSource().add(fn)


def test_two_functions_with_the_same_name_are_refused() -> None:
    source = FunctionSource()
    source.add(star_free)
    with pytest.raises(InvalidTool, match="already has a tool `star_free`"):
        source.add(star_free)
    assert source.add(star_free, name="another").id == "functions.another"


def star_free() -> None: ...


@pytest.mark.parametrize("name", ["a.b", "a b", "-a"])
def test_a_source_name_that_would_split_tool_ids_is_refused(name: str) -> None:
    with pytest.raises(InvalidTool, match="is not a valid source name"):
        FunctionSource(name)


async def test_a_declared_schema_replaces_the_signature() -> None:
    source = FunctionSource()
    schema = {"properties": {"q": {"type": "string", "minLength": 1}}, "required": ["q"]}

    def find(**given: Any) -> Any:
        return given["q"]

    tool = source.add(find, name="find", description="Finds.", input_schema=schema)
    assert (tool.description, tool.input_schema) == ("Finds.", {"type": "object", **schema})
    assert (await source.call_tool(tool, {"q": "it"}, CallContext())).text == "it"
    for broken in ({"type": "array"}, {"type": "object", "properties": 3}):
        with pytest.raises(InvalidTool):
            source.add(lambda: None, name="broken", input_schema=broken)
    with pytest.raises(InvalidTool):
        source.add(lambda: None, name="broken", output_schema={"type": "nothing"})


def text() -> str:
    return "plain"


def nothing() -> None: ...


def untyped():  # pyright: ignore[reportUnknownParameterType]
    return {"a": (1, Colour.RED)}


def node() -> Node:
    return Node(when=datetime(2024, 1, 2))  # noqa: DTZ001


def maybe(*, there: bool = True) -> Point | None:
    return Point(1) if there else None


def moments() -> list[date]:
    return [date(2024, 1, 2)]


def not_a_number() -> list[float]:
    return [float("nan"), 1.5]


def kinds() -> Literal["a", "b"]:
    return "a"


def whole() -> ToolResult:
    return ToolResult({"content": [{"type": "image", "data": "", "mimeType": "image/png"}], "_meta": {"a": 1}})


def unknown() -> Opaque:
    return Opaque()


def half() -> str:
    return "a\udc80b"


@pytest.mark.parametrize(
    ("fn", "wire"),
    [
        (text, {"content": [{"type": "text", "text": "plain"}]}),
        (nothing, {"content": []}),
        (
            untyped,
            {"content": [{"type": "text", "text": '{"a":[1,"red"]}'}], "structuredContent": {"a": [1, "red"]}},
        ),
        (
            node,
            {
                "content": [{"type": "text", "text": '{"when":"2024-01-02T00:00:00","children":[]}'}],
                "structuredContent": {"when": "2024-01-02T00:00:00", "children": []},
            },
        ),
        (
            maybe,
            {
                "content": [{"type": "text", "text": '{"x":1,"y":0}'}],
                "structuredContent": {"result": {"x": 1, "y": 0}},
            },
        ),
        (
            functools.partial(maybe, there=False),
            {"content": [{"type": "text", "text": "null"}], "structuredContent": {"result": None}},
        ),
        (
            moments,
            {
                "content": [{"type": "text", "text": '["2024-01-02"]'}],
                "structuredContent": {"result": ["2024-01-02"]},
            },
        ),
        (
            not_a_number,
            {"content": [{"type": "text", "text": "[null,1.5]"}], "structuredContent": {"result": [None, 1.5]}},
        ),
        (kinds, {"content": [{"type": "text", "text": "a"}], "structuredContent": {"result": "a"}}),
        (whole, {"content": [{"type": "image", "data": "", "mimeType": "image/png"}], "_meta": {"a": 1}}),
        (unknown, {"content": [{"type": "text", "text": "opaque"}], "structuredContent": {"result": "opaque"}}),
        (half, {"content": [{"type": "text", "text": "a?b"}]}),
    ],
)
async def test_answers_become_text_and_structured_content(fn: Callable[..., Any], wire: dict[str, Any]) -> None:
    assert (await call(fn)).wire == wire


@pytest.mark.parametrize("fn", [node, maybe, moments, kinds])
async def test_structured_content_matches_the_output_schema(fn: Callable[..., Any]) -> None:
    tool = FunctionSource().add(fn)
    assert tool.output_schema is not None
    assert tool.output_schema["type"] == "object"
    assert Schema(tool.output_schema).violations((await call(fn)).structured_content) == ()


@pytest.mark.parametrize("fn", [text, nothing, untyped, whole, unknown])
def test_a_function_without_a_json_return_type_has_no_output_schema(fn: Callable[..., Any]) -> None:
    assert FunctionSource().add(fn).output_schema is None


async def test_an_exception_becomes_an_error_result_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise LookupError("no such room")

    async def fail_empty() -> None:
        raise LookupError

    def leave() -> None:
        sys.exit(3)

    results = [await call(fn) for fn in (fail, fail_empty, leave)]
    assert [(result.is_error, result.text) for result in results] == [
        (True, "LookupError: no such room"),
        (True, "LookupError"),
        (True, "SystemExit: 3"),
    ]
    assert [record.exc_info is not None for record in caplog.records] == [True] * 3


async def test_an_answer_that_is_not_serializable_is_reported_as_a_tool_that_ran() -> None:
    def endless() -> Any:
        loop: list[Any] = []
        loop.append(loop)
        return loop

    result = await call(endless)
    assert result.is_error
    assert result.text.startswith("The tool ran, but its answer cannot be written as JSON: ")


@pytest.mark.parametrize("error", [ToolFailed("no", hints=["try later"]), SourceUnavailable("gone", retryable=True)])
async def test_errors_made_for_the_model_pass_through(error: Exception) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        await call(fail)
    assert raised.value is error


async def test_an_unknown_tool_is_refused() -> None:
    with pytest.raises(ToolFailed, match="`functions` has no tool `none`"):
        await FunctionSource().call_tool(Tool("functions", "none"), {}, CallContext())
    with pytest.raises(ToolFailed):
        FunctionSource().remove("none")


async def test_plain_functions_run_in_a_thread_with_the_context_variables_of_the_caller() -> None:
    request = contextvars.ContextVar[str]("request")
    request.set("seen")
    started, go_on = anyio.Event(), threading.Event()
    token = anyio.lowlevel.current_token()

    def blocking() -> str:
        anyio.from_thread.run_sync(started.set, token=token)
        assert go_on.wait(10)
        return f"{request.get()} {threading.current_thread() is threading.main_thread()}"

    results: list[ToolResult] = []

    async def run() -> None:
        results.append(await call(blocking))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await started.wait()  # the loop goes on while the function blocks
        go_on.set()
    assert results[0].text == "seen False"


async def test_cancelling_a_call_does_not_wait_for_its_thread() -> None:
    started, go_on = anyio.Event(), threading.Event()
    token = anyio.lowlevel.current_token()

    def blocking() -> None:
        anyio.from_thread.run_sync(started.set, token=token)
        go_on.wait(10)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, blocking)
            await started.wait()
            tasks.cancel_scope.cancel()
    assert not go_on.is_set()
    go_on.set()


async def test_several_changes_are_reported_once() -> None:
    async with FunctionSource() as source:
        source.add(text)
        changes = source.changes()
        source.add(nothing)
        source.remove("text")
        await anext(changes)
        assert [tool.name for tool in (await source.list_tools()).tools] == ["nothing"]
        with anyio.move_on_after(0):
            await anext(changes)
            pytest.fail("nothing changed since")
    assert [change async for change in changes] == []


async def test_changes_from_any_thread_are_reported_to_every_listener() -> None:
    async with FunctionSource() as source:
        heard: list[str] = []

        async def listen(name: str) -> None:
            await anext(watches[name])
            heard.append(name)

        watches = {name: source.changes() for name in ("first", "second")}
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                for name in watches:
                    tasks.start_soon(listen, name)
                await anyio.wait_all_tasks_blocked()
                await anyio.to_thread.run_sync(source.add, text)
        assert sorted(heard) == ["first", "second"]


def test_a_listener_on_a_closed_event_loop_does_no_harm() -> None:
    source = FunctionSource()

    async def listen() -> None:
        source.changes()
        with anyio.move_on_after(0):
            await anext(source.changes())

    anyio.run(listen)
    gc.collect()
    source.add(text)  # the loop is closed


def test_functions_added_from_many_threads_are_all_listed() -> None:
    source = FunctionSource()
    threads = [threading.Thread(target=source.add, args=(text,), kwargs={"name": f"t{n}"}) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    listing = anyio.run(source.list_tools)
    assert sorted(tool.name for tool in listing.tools) == sorted(f"t{n}" for n in range(20))


names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: name != "self" and not keyword.iskeyword(name)
)


@given(
    st.dictionaries(names, st.integers() | st.text(st.characters(codec="utf-8")) | st.none() | st.lists(st.booleans()))
)
def test_a_function_receives_exactly_the_arguments_that_were_sent(arguments: dict[str, Any]) -> None:
    def echo(**given: Any) -> Any:
        return given

    echo.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in arguments]
    )
    assert anyio.run(functools.partial(call, echo, **arguments)).structured_content == arguments
