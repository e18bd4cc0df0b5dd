"""Asking a person: what counts as consent, to what exactly, for how long; and nothing runs before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.catalogs import registry_of, source_of, tool

from toolcrib.calling import Runner, get_prompt, read_resource
from toolcrib.calling.approving import Approver, MemoryApprovals
from toolcrib.calling.limits import CallLimits, Rate
from toolcrib.catalog.access import Access, Rule, Rules
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.state import SourceEntry, SourceStatus
from toolcrib.catalog.view import View
from toolcrib.core.client import Resumption, SilentClient
from toolcrib.core.errors import InvalidArguments, NotAuthorized, NotExpanded, RateLimited, ToolFailed
from toolcrib.core.principal import LOCAL, CallContext, Principal
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool
from toolcrib.sources.base import Extras, FetchMethod
from toolcrib.testing.scripted import ScriptedSource

PUSH = tool("git.push", "Send commits away.", properties={"to": {"type": "string"}}, required=("to",))
ASK = Rules((), Access.ASK)
TO_HOME = {"to": "home"}
RESUMED = Resumption({"name": {"action": "accept"}}, "state")


@dataclass(frozen=True)
class Person:
    """Answers every question alike, and remembers them."""

    answer: Mapping[str, Any] | Exception
    capabilities: Mapping[str, Any] = field(default_factory=lambda: {"elicitation": {}})
    asked: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])

    @property
    def log_level(self) -> None:
        return None

    def log(self, params: Mapping[str, Any]) -> None: ...

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        assert method == "elicitation/create"
        self.asked.append(params)
        await anyio.lowlevel.checkpoint()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def saying(answer: str) -> Person:
    return Person({"action": "accept", "content": {"answer": answer}})


def view_for(principal: Principal = LOCAL, *tools: Tool) -> View:
    return View.of(registry_of(*(tools or (PUSH,))).state, principal, ASK)


async def run(
    runner: Runner, view: View, person: Person | None, arguments: object = TO_HOME, **more: Any
) -> ToolResult:
    context = CallContext(view.principal, client=person, **more)
    (known,) = view.tools.values()
    return await runner.call_tool(view, known.handle, arguments, context)


async def was_asked(runner: Runner, view: View, arguments: object = TO_HOME, **more: Any) -> bool:
    """Whether a call asks; who is asked says no."""
    person = saying("no")
    try:
        await run(runner, view, person, arguments, **more)
    except NotAuthorized:
        assert person.asked
        return True
    assert not person.asked
    return False


# -- what is consent --------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_person_who_says_once_is_asked_the_next_time_as_well() -> None:
    runner, view, person = Runner(), view_for(), saying("once")

    for _ in range(2):
        assert (await run(runner, view, person)).structured_content == TO_HOME
    assert len(person.asked) == 2
    assert await was_asked(runner, view)


@pytest.mark.anyio
async def test_a_person_who_says_always_is_not_asked_again() -> None:
    runner, view, person = Runner(), view_for(), saying("always")

    for arguments in (TO_HOME, {"to": "elsewhere"}):
        assert (await run(runner, view, person, arguments)).structured_content == arguments
    assert len(person.asked) == 1
    assert await run(runner, view, None), "not even where nobody could be asked"


@pytest.mark.anyio
@pytest.mark.parametrize(
    "answer",
    [
        {"action": "accept", "content": {"answer": "no"}},
        {"action": "accept", "content": {"answer": "yes"}},
        {"action": "accept", "content": {"answer": "ONCE"}},
        {"action": "accept", "content": {"answer": True}},
        {"action": "accept", "content": {"answer": ["once"]}},
        {"action": "accept", "content": {}},
        {"action": "accept", "content": None},
        {"action": "accept"},
        {"action": "decline"},
        {"action": "decline", "content": {"answer": "once"}},
        {"action": "cancel", "content": {"answer": "always"}},
        {"action": "Accept", "content": {"answer": "once"}},
        {"content": {"answer": "once"}},
        {"answer": "once"},
        {},
        ToolFailed("There is nobody who could be asked now."),
    ],
    ids=str,
)
async def test_anything_but_an_answer_that_says_so_is_a_no(answer: Mapping[str, Any] | Exception) -> None:
    runner, view, person = Runner(), view_for(), Person(answer)

    with pytest.raises(NotAuthorized, match=r"`git\.push` was not run") as refused:
        await run(runner, view, person)

    assert not refused.value.retryable
    assert len(person.asked) == 1
    assert source_of(view, "git").calls == []
    assert await was_asked(runner, view), "and nothing was kept"


KEYS = st.sampled_from(["action", "content", "answer"])
ANSWERS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["once", "always", "accept", "no", "yes"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["action", "content", "answer"]), inner)
    ),
    max_leaves=6,
)


@given(st.dictionaries(KEYS, ANSWERS))
def test_of_all_answers_only_two_are_consent(answer: Mapping[str, Any]) -> None:
    async def main() -> bool:
        view = view_for()
        try:
            await run(Runner(), view, Person(answer))
        except NotAuthorized:
            assert source_of(view, "git").calls == []
            return False
        return True

    content = answer.get("content")
    says = content.get("answer") if isinstance(content, Mapping) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    assert anyio.run(main) is (answer.get("action") == "accept" and says in ("once", "always"))


@pytest.mark.anyio
async def test_a_client_that_breaks_while_it_is_asked_lets_nothing_run() -> None:
    view = view_for()

    with pytest.raises(ConnectionError):
        await run(Runner(), view, Person(ConnectionError()))
    assert source_of(view, "git").calls == []


@pytest.mark.anyio
async def test_a_caller_who_goes_away_while_a_person_is_asked_lets_nothing_run() -> None:
    class Pensive(Person):
        async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            scope.cancel()
            await anyio.sleep_forever()
            raise AssertionError

    runner, view = Runner(), view_for()
    with anyio.CancelScope() as scope:
        await run(runner, view, Pensive({}))
    assert scope.cancelled_caught
    assert source_of(view, "git").calls == []
    assert await was_asked(runner, view)


@pytest.mark.holds("errors.not-authorized")
@pytest.mark.anyio
@pytest.mark.parametrize(
    "client",
    [None, SilentClient({}), SilentClient({"elicitation": {"url": {}}}), SilentClient({"roots": {}, "sampling": {}})],
    ids=str,
)
async def test_where_nobody_can_be_asked_nothing_runs(client: SilentClient | None) -> None:
    view = view_for()

    with pytest.raises(NotAuthorized, match="your client cannot ask one"):
        await Runner().call_tool(view, PUSH.handle, TO_HOME, CallContext(client=client))
    assert source_of(view, "git").calls == []


@pytest.mark.anyio
@pytest.mark.parametrize("capability", [{}, None, {"form": {}}, {"form": {}, "url": {}}], ids=str)
async def test_whoever_can_show_a_form_can_be_asked(capability: Mapping[str, Any] | None) -> None:
    person = replace(saying("once"), capabilities={"elicitation": capability})

    assert await run(Runner(), view_for(), person)


# -- what is asked ----------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_the_question_says_what_would_run_with_what_for_whom() -> None:
    person = saying("once")
    await run(Runner(), view_for(Principal("ada")), person, {"to": "日本 🧰"})

    (question,) = person.asked
    for part in ("git.push", "ada", "Send commits away.", "日本 🧰"):
        assert part in question["message"]
    assert question["requestedSchema"]["properties"]["answer"]["enum"] == ["once", "always", "no"]
    assert question["requestedSchema"]["required"] == ["answer"]


@pytest.mark.anyio
async def test_a_question_is_no_longer_than_a_person_reads() -> None:
    person = saying("once")
    await run(Runner(), view_for(), person, {"to": "x" * 1_000_000})

    assert len(person.asked[0]["message"]) < 3_000


@pytest.mark.anyio
async def test_what_would_not_run_anyway_is_asked_of_nobody() -> None:
    runner, view, person = Runner(CallLimits(Rate(1, 1))), view_for(), saying("once")
    context = CallContext(client=person)

    with pytest.raises(InvalidArguments):
        await runner.call_tool(view, PUSH.handle, {"to": 5}, context)
    with pytest.raises(NotExpanded):
        await runner.call_tool(view, PUSH.id, TO_HOME, context)
    with pytest.raises(NotAuthorized, match="not known to only read"):
        await runner.call_tool(view, PUSH.handle, TO_HOME, context, only_read=True)
    assert person.asked == []
    await runner.call_tool(view, PUSH.handle, TO_HOME, context)
    with pytest.raises(RateLimited):
        await runner.call_tool(view, PUSH.handle, TO_HOME, context)
    assert len(person.asked) == 1


@pytest.mark.anyio
async def test_who_may_call_asks_nobody_and_who_may_only_see_neither() -> None:
    registry, person = registry_of(PUSH), saying("once")
    for access in (Access.CALL, Access.SEE):
        view = View.of(registry.state, policy=Rules((), access))
        context = CallContext(client=person)
        if access is Access.SEE:
            with pytest.raises(NotAuthorized):
                await Runner().call_tool(view, PUSH.handle, TO_HOME, context)
        else:
            await Runner().call_tool(view, PUSH.handle, TO_HOME, context)
    assert person.asked == []


# -- to what exactly --------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_an_approval_for_good_is_of_one_principal_one_tool_and_one_definition() -> None:
    runner, ada = Runner(), Principal("ada")
    pull = replace(PUSH, name="pull")
    await run(runner, view_for(ada), saying("always"))

    assert not await was_asked(runner, view_for(ada))
    assert not await was_asked(runner, view_for(replace(ada, scopes=frozenset({"more"}))))
    assert await was_asked(runner, view_for(Principal("grace")))
    assert await was_asked(runner, view_for(ada, pull))
    for changed in (
        replace(PUSH, description="Send commits elsewhere."),
        replace(PUSH, input_schema={"type": "object"}),
        replace(PUSH, wire={"name": "push", "_meta": {"new": 1}}),
    ):
        assert await was_asked(runner, view_for(ada, changed))
    assert not await was_asked(runner, view_for(ada)), "the old definition is approved still"


@pytest.mark.anyio
async def test_approvals_are_kept_where_the_owner_keeps_them() -> None:
    kept = MemoryApprovals()
    await run(Runner(approver=Approver(kept)), view_for(), saying("always"))

    assert kept.holds("local", "git.push", PUSH.digests.wire)
    assert not await was_asked(Runner(approver=Approver(kept)), view_for())
    assert await was_asked(Runner(), view_for())


# -- calls that pause -------------------------------------------------------------------------------------------------

PAUSED = ToolResult({"resultType": "input_required", "inputRequests": {}, "requestState": "state"})


async def paused(runner: Runner, view: View) -> None:
    """Approve a call once, which then asks for input."""
    source_of(view, "git").answers["push"] = PAUSED
    assert (await run(runner, view, saying("once"))).needs_input
    del source_of(view, "git").answers["push"]


@pytest.mark.anyio
async def test_a_call_that_comes_back_with_input_is_not_asked_about_again_and_the_next_one_is() -> None:
    runner, view = Runner(), view_for()
    await paused(runner, view)

    assert not await was_asked(runner, view, resumed=RESUMED)
    assert await was_asked(runner, view, resumed=RESUMED), "it came back once already"
    assert await was_asked(runner, view)


@pytest.mark.anyio
async def test_a_call_may_pause_more_than_once() -> None:
    runner, view = Runner(), view_for()
    await paused(runner, view)
    source_of(view, "git").answers["push"] = PAUSED
    assert not await was_asked(runner, view, resumed=RESUMED)
    del source_of(view, "git").answers["push"]

    assert not await was_asked(runner, view, resumed=RESUMED)
    assert await was_asked(runner, view, resumed=RESUMED)


@pytest.mark.anyio
async def test_who_only_pretends_to_come_back_is_asked() -> None:
    runner, view = Runner(), view_for()
    assert await was_asked(runner, view, resumed=RESUMED)
    await paused(runner, view)

    assert await was_asked(runner, view, {"to": "elsewhere"}, resumed=RESUMED)
    assert await was_asked(runner, view_for(Principal("grace")), resumed=RESUMED)
    assert await was_asked(runner, view_for(LOCAL, replace(PUSH, description="Another.")), resumed=RESUMED)
    assert await was_asked(runner, view)
    assert not await was_asked(runner, view, resumed=RESUMED)


@pytest.mark.anyio
async def test_an_approval_serves_one_of_two_that_come_back_at_once() -> None:
    runner, view = Runner(), view_for()
    await paused(runner, view)
    asked: list[bool] = []

    async def come_back() -> None:
        asked.append(await was_asked(runner, view, resumed=RESUMED))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(come_back)
        tasks.start_soon(come_back)
    assert sorted(asked) == [False, True]
    assert len(source_of(view, "git").calls) == 2  # the one that paused, and the one that came back


@pytest.mark.anyio
async def test_a_call_that_failed_after_it_was_approved_is_asked_about_again() -> None:
    runner, view = Runner(), view_for()
    source_of(view, "git").answers["push"] = ToolFailed("No.")
    with pytest.raises(ToolFailed):
        await run(runner, view, saying("once"))

    assert await was_asked(runner, view, resumed=RESUMED)
    assert await was_asked(runner, view)


# -- side by side -----------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_calls_side_by_side_are_each_asked_about_for_themselves() -> None:
    runner, view = Runner(), view_for()
    outcomes: dict[str, str] = {}

    async def call(where: str, answer: str) -> None:
        try:
            result = await run(runner, view, saying(answer), {"to": where})
        except NotAuthorized:
            outcomes[where] = "no"
        else:
            outcomes[where] = result.structured_content["to"]

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(call, str(number), "once" if number % 3 else "no")

    assert outcomes == {str(number): str(number) if number % 3 else "no" for number in range(20)}
    assert len(source_of(view, "git").calls) == 13


# -- prompts and resources --------------------------------------------------------------------------------------------


class Library(ScriptedSource):
    """Has a prompt that asks for input when it is told to, and a resource."""

    def __init__(self) -> None:
        super().__init__("library")
        self.asked: list[str] = []
        self.pauses = False

    async def fetch(self, method: FetchMethod, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        self.asked.append(method)
        return PAUSED.wire if self.pauses else {"messages": [], "contents": []}


def shelf() -> tuple[Library, View]:
    registry, library = ToolRegistry(), Library()
    extras = Extras(prompts=({"name": "plan"},), resources=({"uri": "memo://1", "name": "one"},))
    registry.put_source(SourceEntry(library, SourceStatus.READY, extras=extras))
    ask = Rules((Rule(Access.ASK, sources=("library",)),), Access.HIDDEN)
    return library, View.of(registry.state, policy=ask)


@pytest.mark.anyio
async def test_a_resource_is_asked_about_each_time_as_it_has_no_definition_to_approve_of_for_good() -> None:
    library, view = shelf()
    runner, person = Runner(), saying("once")
    for _ in range(2):
        await read_resource(view, "toolcrib://library/memo://1", CallContext(client=person), runner=runner)

    assert len(person.asked) == len(library.asked) == 2
    assert "memo://1" in person.asked[0]["message"]
    assert person.asked[0]["requestedSchema"]["properties"]["answer"]["enum"] == ["once", "no"]
    for refusing in (saying("no"), saying("always"), None):
        with pytest.raises(NotAuthorized):
            await read_resource(view, "toolcrib://library/memo://1", CallContext(client=refusing), runner=runner)
    assert len(library.asked) == 2


@pytest.mark.anyio
async def test_a_prompt_that_comes_back_with_input_is_not_asked_about_again() -> None:
    library, view = shelf()
    runner, person = Runner(), saying("once")
    context = CallContext(client=person)

    async def get(day: str, resumed: Resumption | None = None) -> None:
        await get_prompt(view, "library__plan", {"day": day}, replace(context, resumed=resumed), runner=runner)

    library.pauses = True
    await get("monday")
    assert "monday" in person.asked[0]["message"]
    library.pauses = False
    await get("monday", RESUMED)
    assert len(person.asked) == 1
    await get("monday", RESUMED)
    await get("tuesday", RESUMED)
    assert len(person.asked) == 3
