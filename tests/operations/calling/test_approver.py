"""Asking a person for approval: what counts as consent, to which call, for how long; and nothing runs before it."""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.catalogs import registry_of, source_of, tool

from toolcrib import Toolcrib
from toolcrib.catalog.access import Access, Policy, Rule, Rules
from toolcrib.catalog.catalog_state import SourceEntry, SourceStatus
from toolcrib.catalog.registry import ToolRegistry
from toolcrib.catalog.view import View
from toolcrib.core.client import ANSWER_S, Resumption, SilentClient
from toolcrib.core.errors import (
    ApprovalPending,
    InvalidArguments,
    NextAction,
    NotAuthorized,
    NotExpanded,
    NotFound,
    RateLimited,
    StaleExpansion,
    ToolcribError,
    ToolFailed,
    ToolNotFound,
)
from toolcrib.core.principal import LOCAL, CallContext, Principal
from toolcrib.core.results import ToolResult
from toolcrib.core.tools import Tool, ToolAnnotations
from toolcrib.operations.calling import Runner, complete, get_prompt, read_resource
from toolcrib.operations.calling.approval_question import Intent
from toolcrib.operations.calling.approver import Approver, MemoryApprovals
from toolcrib.operations.calling.limits import CallLimits, Rate
from toolcrib.secrets.keys import KeyUnavailable
from toolcrib.secrets.sealing import Seal
from toolcrib.sources.base import Extras, FetchMethod
from toolcrib.testing.scripted_source import ScriptedSource
from toolcrib.waiting import WaitingStore
from toolcrib.waiting.waiting_store import WAITS_S

PUSH = tool("git.push", "Send commits away.", properties={"to": {"type": "string"}}, required=("to",))
ASK = Rules((), Access.ASK)
TO_HOME = {"to": "home"}
RESPONSES = {"name": {"action": "accept"}}


@dataclass(frozen=True)
class Person:
    """Gives the same answer to every question, and records the questions."""

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
    """Whether a call asks a person. The person says no."""
    person = saying("no")
    try:
        await run(runner, view, person, arguments, **more)
    except NotAuthorized:
        assert person.asked
        return True
    assert not person.asked
    return False


# -- consent ----------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_person_who_approves_once_is_asked_again() -> None:
    runner, view, person = Runner(), view_for(), saying("once")

    for _ in range(2):
        assert (await run(runner, view, person)).structured_content == TO_HOME
    assert len(person.asked) == 2
    assert await was_asked(runner, view)


@pytest.mark.anyio
async def test_a_person_who_approves_always_is_not_asked_again() -> None:
    runner, view, person = Runner(), view_for(), saying("always")

    for arguments in (TO_HOME, {"to": "elsewhere"}):
        assert (await run(runner, view, person, arguments)).structured_content == arguments
    assert len(person.asked) == 1
    assert await run(runner, view, None), "even without a client that could ask a person"


@pytest.mark.anyio
async def test_approving_always_applies_to_one_server_only() -> None:
    runner = Runner()

    def served_by(identity: str) -> View:
        registry = registry_of(PUSH)
        entry = registry.state.sources["git"]
        registry.register_source(replace(entry, identity=identity))
        return View.of(registry.state, LOCAL, ASK)

    await run(runner, served_by("git-mcp"), saying("always"))
    assert not await was_asked(runner, served_by("git-mcp"))
    assert await was_asked(runner, served_by("/tmp/git-mcp"))


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
        ToolFailed("The client that sent this request cannot be asked now."),
    ],
    ids=str,
)
async def test_any_answer_except_explicit_consent_is_a_refusal(answer: Mapping[str, Any] | Exception) -> None:
    runner, view, person = Runner(), view_for(), Person(answer)

    with pytest.raises(NotAuthorized, match=r"`git\.push` did not run") as refused:
        await run(runner, view, person)

    assert not refused.value.retryable
    assert len(person.asked) == 1
    assert source_of(view, "git").calls == []
    assert await was_asked(runner, view), "no approval was stored"


KEYS = st.sampled_from(["action", "content", "answer"])
ANSWERS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["once", "always", "accept", "no", "yes"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["action", "content", "answer"]), inner)
    ),
    max_leaves=6,
)


@given(st.dictionaries(KEYS, ANSWERS))
def test_only_two_answers_count_as_consent(answer: Mapping[str, Any]) -> None:
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
async def test_a_call_does_not_run_if_the_client_fails_during_the_question() -> None:
    view = view_for()

    with pytest.raises(NotAuthorized, match="could not ask for approval"):
        await run(Runner(), view, Person(ConnectionError()))
    assert source_of(view, "git").calls == []


Noted = list[str]


async def noted(person: Person | None) -> Noted:
    """The steps of the approval that were recorded, in order."""
    steps: Noted = []
    with suppress(NotAuthorized):
        await run(Runner(), view_for(), person, note_approval=steps.append)
    return steps


@pytest.mark.anyio
async def test_every_step_of_an_approval_is_recorded() -> None:
    assert await noted(None) == ["unasked"]
    assert await noted(saying("once")) == ["unasked", "unanswered", "once"]
    assert await noted(saying("always")) == ["unasked", "unanswered", "always"]
    assert await noted(saying("no")) == ["unasked", "unanswered", "refused"]
    assert await noted(Person({"action": "cancel"})) == ["unasked", "unanswered", "unanswered"]
    assert await noted(Person(ConnectionError())) == ["unasked", "unanswered"]


@pytest.mark.anyio
async def test_an_earlier_permanent_approval_is_recorded() -> None:
    runner, view, steps = Runner(), view_for(), Noted()
    await run(runner, view, saying("always"))
    await run(runner, view, None, note_approval=steps.append)

    assert steps == ["kept"]


USE_A_DIFFERENT_TOOL = "Use a different tool, or ask your user what to do."


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("person", "hints"),
    [
        (saying("no"), (USE_A_DIFFERENT_TOOL,)),
        (Person(ToolFailed("Nobody is there.")), (USE_A_DIFFERENT_TOOL,)),
        (Person(ConnectionError()), (USE_A_DIFFERENT_TOOL,)),
        (
            None,
            (
                USE_A_DIFFERENT_TOOL,
                "Connect with a client that supports elicitation, or ask the gateway's owner to allow this tool.",
            ),
        ),
    ],
    ids=["no", "fails", "breaks", "no client"],
)
async def test_a_refusal_tells_the_model_what_to_do_instead(person: Person | None, hints: tuple[str, ...]) -> None:
    with pytest.raises(NotAuthorized) as refused:
        await run(Runner(), view_for(), person)

    assert refused.value.hints == hints


@pytest.mark.anyio
async def test_a_call_does_not_run_if_its_caller_disconnects_during_the_question() -> None:
    class Cancelling(Person):
        async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
            scope.cancel()
            await anyio.sleep_forever()
            raise AssertionError

    runner, view = Runner(), view_for()
    with anyio.CancelScope() as scope:
        await run(runner, view, Cancelling({}))
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
async def test_a_call_does_not_run_without_a_client_that_can_ask(client: SilentClient | None) -> None:
    view = view_for()

    with pytest.raises(NotAuthorized, match="your client cannot show the question"):
        await Runner().call_tool(view, PUSH.handle, TO_HOME, CallContext(client=client))
    assert source_of(view, "git").calls == []


@pytest.mark.anyio
@pytest.mark.parametrize("capability", [{}, None, {"form": {}}, {"form": {}, "url": {}}], ids=str)
async def test_a_client_that_supports_forms_can_ask(capability: Mapping[str, Any] | None) -> None:
    person = replace(saying("once"), capabilities={"elicitation": capability})

    assert await run(Runner(), view_for(), person)


# -- answers outside the client ----------------------------------------------------------------------------------------


@pytest.fixture
def waiting(tmp_path: Path) -> WaitingStore:
    return WaitingStore(tmp_path / "waiting.sqlite", lambda: Seal([bytes(32)]))


async def pending(runner: Runner, view: View, arguments: object = TO_HOME, **more: Any) -> ApprovalPending:
    with pytest.raises(ApprovalPending) as raised:
        await run(runner, view, None, arguments, **more)
    return raised.value


@pytest.mark.anyio
async def test_a_call_of_a_client_that_cannot_ask_waits_and_runs_once_when_it_is_granted(waiting: WaitingStore) -> None:
    runner, view = Runner(approver=Approver(waiting=waiting)), view_for()

    first, again = await pending(runner, view), await pending(runner, view)
    assert again.waiting_id == first.waiting_id
    assert (first.retryable, first.next_action) == (
        True,
        NextAction("call_tool", {"tool_id": PUSH.handle, "arguments": TO_HOME}),
    )
    assert 0 < first.expires_in_s <= WAITS_S
    assert source_of(view, "git").calls == []

    assert waiting.answer(first.waiting_id, "granted")
    assert (await pending(runner, view, {"to": "elsewhere"})).waiting_id != first.waiting_id
    assert (await pending(runner, view_for(Principal("grace")))).waiting_id != first.waiting_id
    assert (await run(runner, view, None)).structured_content == TO_HOME
    assert (await pending(runner, view)).waiting_id != first.waiting_id


@pytest.mark.anyio
async def test_a_waiting_call_that_is_refused_is_told_once(waiting: WaitingStore) -> None:
    runner, view = Runner(approver=Approver(waiting=waiting)), view_for()
    waiting.answer((await pending(runner, view)).waiting_id, "refused")

    with pytest.raises(NotAuthorized, match="the call was not approved"):
        await run(runner, view, None)
    assert await pending(runner, view)
    assert source_of(view, "git").calls == []


@pytest.mark.anyio
async def test_a_grant_does_not_hold_for_a_changed_definition(waiting: WaitingStore) -> None:
    runner = Runner(approver=Approver(waiting=waiting))
    waiting.answer((await pending(runner, view_for())).waiting_id, "granted")

    changed = tool("git.push", "Send all commits away.", properties={"to": {"type": "string"}}, required=("to",))
    assert await pending(runner, view_for(LOCAL, changed))


@pytest.mark.anyio
async def test_a_grant_does_not_hold_against_a_policy_that_refuses_by_then(waiting: WaitingStore) -> None:
    runner, view = Runner(approver=Approver(waiting=waiting)), view_for()
    waiting.answer((await pending(runner, view)).waiting_id, "granted")

    refusing = View.of(registry_of(PUSH).state, LOCAL, Rules((), Access.SEE))
    with pytest.raises(NotAuthorized, match="is not allowed to call"):
        await run(runner, refusing, None)
    assert source_of(refusing, "git").calls == []


@pytest.mark.anyio
async def test_a_call_is_refused_if_it_cannot_wait(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def no_key() -> Seal:
        raise KeyUnavailable("the key in /home/ada is gone")

    damaged = tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"this is no database" * 100)
    for store in (
        WaitingStore(damaged, lambda: Seal([bytes(32)])),
        WaitingStore(tmp_path / "waiting.sqlite", no_key),
    ):
        view = view_for()
        with pytest.raises(NotAuthorized, match="your client cannot show the question") as refused:
            await run(Runner(approver=Approver(waiting=store)), view, None)
        assert "/home/ada" not in str(refused.value.to_wire())
        assert source_of(view, "git").calls == []
    assert "a call cannot wait for approval" in caplog.text


@pytest.mark.anyio
async def test_a_call_with_very_large_arguments_does_not_wait(waiting: WaitingStore) -> None:
    with pytest.raises(NotAuthorized, match="too large for a call that waits"):
        await run(Runner(approver=Approver(waiting=waiting)), view_for(), None, {"to": "x" * 300_000})
    assert waiting.all() == ()


@pytest.mark.anyio
async def test_a_caller_can_leave_while_the_key_of_waiting_calls_is_locked(tmp_path: Path) -> None:
    asked, unlocked, over = Event(), Event(), Event()
    in_time: list[bool] = []

    def locked() -> Seal:
        asked.set()
        in_time.append(unlocked.wait(5))
        over.set()
        return Seal([bytes(32)])

    runner = Runner(approver=Approver(waiting=WaitingStore(tmp_path / "waiting.sqlite", locked)))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, runner, view_for(), None)
        await anyio.to_thread.run_sync(asked.wait, 5)
        tasks.cancel_scope.cancel()
    assert in_time == [], "the caller waited for the key"
    unlocked.set()
    await anyio.to_thread.run_sync(over.wait, 5)
    assert in_time == [True]


@pytest.mark.anyio
async def test_a_completion_does_not_wait(waiting: WaitingStore) -> None:
    _, view = library_and_view()
    params = {"ref": {"type": "ref/prompt", "name": "library__plan"}, "argument": {"name": "day", "value": "mon"}}
    with pytest.raises(NotAuthorized, match="your client cannot show the question"):
        await complete(view, params, CallContext(), runner=Runner(approver=Approver(waiting=waiting)))
    assert waiting.all() == ()


@pytest.mark.anyio
async def test_a_resource_waits_without_a_definition_that_could_be_approved_permanently(waiting: WaitingStore) -> None:
    approver = Approver(waiting=waiting)
    intent = Intent("local", "library: memo://1", server="one", arguments={"uri": "memo://1"})
    for server in ("one", "two"):
        with pytest.raises(ApprovalPending):
            await approver.ask(replace(intent, server=server), CallContext())
    first, second = waiting.all()
    assert (first.definition, second.definition) == ("", "")
    waiting.answer(first.id, "granted")
    with pytest.raises(ApprovalPending):
        await approver.ask(replace(intent, server="two"), CallContext())
    assert await approver.ask(intent, CallContext()) == "once"


# -- the question -----------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_the_question_names_the_tool_the_arguments_and_the_principal() -> None:
    person = saying("once")
    await run(Runner(), view_for(Principal("ada")), person, {"to": "日本 🧰"})

    (question,) = person.asked
    for part in ("git.push", "ada", "Send commits away.", "日本 🧰"):
        assert part in question["message"]
    assert question["requestedSchema"]["properties"]["answer"]["enum"] == ["once", "always", "no"]
    assert question["requestedSchema"]["required"] == ["answer"]


NOTE = tool("git.note", "Write something down.")
VALUES = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=9)


async def question_about(arguments: Mapping[str, Any], noted: Tool = NOTE) -> Mapping[str, Any]:
    person = saying("once")
    await run(Runner(), view_for(LOCAL, noted), person, arguments)
    (question,) = person.asked
    return question


def shown_in(question: Mapping[str, Any]) -> dict[str, str]:
    """The arguments as the question shows them, by path."""
    _, _, rows = question["message"].partition("\nArguments:\n")
    return dict(row.split(": ", 1) for row in rows.partition("\n\n")[0].splitlines())


def choices_of(question: Mapping[str, Any]) -> list[str]:
    return question["requestedSchema"]["properties"]["answer"]["enum"]


@given(st.dictionaries(st.text("ab-_", min_size=1), VALUES | st.lists(VALUES, max_size=3), max_size=5))
def test_the_question_shows_all_arguments_as_they_are_sent(arguments: Mapping[str, Any]) -> None:
    question = anyio.run(question_about, arguments)

    assert {key: json.loads(value) for key, value in shown_in(question).items()} == arguments
    assert question["message"].replace("\n", "").isprintable()
    assert choices_of(question) == ["once", "always", "no"]


HIDING = {
    "direction": "\u202egnp.exe",
    "isolates": "a\u2066b\u2069",
    "tags": "\U000e0041\U000e0042",
    "zero_width": "a\u200bb\ufeff",
    "controls": "\x1b[2J\x07\x9b",
    "lines": "one\ntwo\u2028three\r",
    "selectors": "a\ufe0f\U000e0100",
    "fillers": "\u3164\u115f\u2800",
    "spaces": "a\u00a0b\u2003",
}


@pytest.mark.anyio
async def test_invisible_characters_in_a_question_are_escaped() -> None:
    hidden = "".join(HIDING.values())
    noted = tool("git.note", f"Write {hidden} down")
    nested: dict[str, Any] = {**HIDING, "in": {hidden: hidden}}
    message = (await question_about(nested, noted))["message"]

    assert not set(message) & set(hidden) - set("\n" + string.printable)
    assert all(char == "\n" or char.isprintable() for char in message)
    assert "\\u202egnp.exe" in message
    assert "\\udb40\\udc41" in message
    shown = shown_in({"message": message})
    assert {key: json.loads(shown[key]) for key in HIDING} == HIDING


@pytest.mark.anyio
async def test_the_description_of_the_tool_is_quoted_and_cannot_escape_the_quotes() -> None:
    boast = 'Harmless" (says the owner: "run it)'
    message = (await question_about({"a": 1}, tool("git.note", boast)))["message"]

    first, _, words, _, *rows = message.split("\n")
    assert first == 'Toolcrib asks: run "git.note" for "local"?'
    assert words == f"The tool describes itself as: {json.dumps(boast)}"
    assert rows == ["Arguments:", "a: 1"]


@pytest.mark.anyio
async def test_every_argument_is_shown_and_shortened_values_show_their_size() -> None:
    padded = {f"pad{number}": "x" * 5_000 for number in range(20)}
    question = await question_about({**padded, "to": {"who": "mallory", "amount": 5}, "a: b": 1})

    shown = shown_in(question)
    assert [*shown] == [*padded, "to.who", "to.amount", '"a']
    assert (shown["to.who"], shown["to.amount"]) == ('"mallory"', "5")
    assert '"a: b": 1' in question["message"]
    assert all(shown[key].endswith("x… (5,002 characters)") for key in padded)
    assert "The tool receives them in full." in question["message"]
    assert choices_of(question) == ["once", "no"]


@pytest.mark.anyio
async def test_the_length_of_a_question_is_bounded() -> None:
    for arguments in ({"to": "x" * 1_000_000}, {"x" * 1_000_000: 1}, {"to": ["\u202e"] * 100_000}):
        question = await question_about(arguments)
        assert len(question["message"]) < 3_000
        assert choices_of(question) == ["once", "no"]


@pytest.mark.anyio
async def test_always_is_not_accepted_if_the_question_does_not_show_everything() -> None:
    view = view_for()
    with pytest.raises(NotAuthorized):
        await run(Runner(), view, saying("always"), {"to": "x" * 1_000_000})
    assert source_of(view, "git").calls == []


@pytest.mark.anyio
async def test_a_call_with_too_many_arguments_is_refused_without_a_question() -> None:
    view, person = view_for(LOCAL, NOTE), saying("once")
    with pytest.raises(NotAuthorized, match="51 arguments are too many"):
        await run(Runner(), view, person, {f"a{number}": number for number in range(51)})
    assert (person.asked, source_of(view, "git").calls) == ([], [])

    deep = {"all": {f"a{number}": number for number in range(51)}}
    assert [*shown_in(await question_about(deep))] == ["all"], "the limit does not apply inside of an argument"


@pytest.mark.anyio
async def test_a_call_that_would_fail_anyway_asks_no_person() -> None:
    runner, view, person = Runner(CallLimits(Rate(1, 1))), view_for(), saying("once")
    context = CallContext(client=person)

    with pytest.raises(InvalidArguments):
        await runner.call_tool(view, PUSH.handle, {"to": 5}, context)
    with pytest.raises(NotExpanded):
        await runner.call_tool(view, PUSH.id, TO_HOME, context)
    with pytest.raises(NotAuthorized, match="may change something, so `call_read_only_tool` does not run it"):
        await runner.call_tool(view, PUSH.handle, TO_HOME, context, only_read=True)
    assert person.asked == []
    await runner.call_tool(view, PUSH.handle, TO_HOME, context)
    with pytest.raises(RateLimited):
        await runner.call_tool(view, PUSH.handle, TO_HOME, context)
    assert len(person.asked) == 1


@pytest.mark.anyio
async def test_approval_is_only_requested_from_principals_with_access_ask() -> None:
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


# -- the scope of an approval -----------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_permanent_approval_applies_to_one_principal_one_tool_and_one_definition() -> None:
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
    assert not await was_asked(runner, view_for(ada)), "the old definition is still approved"


@pytest.mark.anyio
async def test_approvals_are_stored_in_the_configured_store() -> None:
    kept = MemoryApprovals()
    await run(Runner(approver=Approver(kept)), view_for(), saying("always"))

    assert not await was_asked(Runner(approver=Approver(kept)), view_for())
    assert await was_asked(Runner(), view_for())


# -- changes during the question --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Thinking(Person):
    """Something happens before the person answers."""

    happens: Callable[[], object] = lambda: None

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        answer = await super().ask(method, params)
        self.happens()
        return answer


def saying_after(happens: Callable[[], object], answer: str = "always") -> Thinking:
    return Thinking({"action": "accept", "content": {"answer": answer}}, happens=happens)


@dataclass
class Changing:
    """A catalog that may change before a person has answered."""

    registry: ToolRegistry = field(default_factory=lambda: registry_of(PUSH))
    policy: Policy = ASK
    kept: MemoryApprovals = field(default_factory=MemoryApprovals)

    def view(self, principal: Principal = LOCAL) -> View:
        return View.of(self.registry.state, principal, self.policy)

    def seen_by(self, context: CallContext) -> View:
        return self.view(context.principal)

    async def call(self, person: Person, *, only_read: bool = False, **more: Any) -> ToolResult:
        runner, view = Runner(approver=Approver(self.kept), view_of=self.seen_by), self.view()
        context = CallContext(client=person, **more)
        return await runner.call_tool(view, PUSH.handle, TO_HOME, context, only_read=only_read)

    async def is_approved(self) -> bool:
        """Whether the tool runs without a question after all changes are undone."""
        self.registry, self.policy = registry_of(PUSH), ASK
        return not await was_asked(Runner(approver=Approver(self.kept)), self.view())

    def source(self) -> ScriptedSource:
        source = self.registry.state.sources["git"].source
        assert isinstance(source, ScriptedSource)
        return source

    def obey(self, policy: Policy) -> None:
        self.policy = policy

    def offer(self, tool: Tool) -> None:
        self.registry.register_source(self.registry.state.sources["git"], [tool])

    def move(self, **changes: Any) -> None:
        self.registry.register_source(replace(self.registry.state.sources["git"], **changes), [PUSH])


CHANGES: dict[str, tuple[Callable[[Changing], object], type[ToolcribError]]] = {
    "it is hidden": (lambda crib: crib.obey(Rules((), Access.HIDDEN)), ToolNotFound),
    "it may only be seen": (lambda crib: crib.obey(Rules((), Access.SEE)), NotAuthorized),
    "its source was removed": (lambda crib: crib.registry.unregister_source("git"), ToolNotFound),
    "its description changed": (lambda crib: crib.offer(replace(PUSH, description="Other.")), StaleExpansion),
    "its metadata changed": (lambda crib: crib.offer(replace(PUSH, wire={"_meta": {"new": 1}})), StaleExpansion),
    "its server was replaced": (lambda crib: crib.move(identity="other"), StaleExpansion),
    "its source was replaced": (lambda crib: crib.move(source=ScriptedSource("git", [PUSH])), StaleExpansion),
}


@pytest.mark.anyio
@pytest.mark.parametrize("change", CHANGES)
async def test_a_tool_that_changed_during_the_question_is_checked_again(change: str) -> None:
    crib = Changing()
    happens, error = CHANGES[change]
    before = crib.source()

    with pytest.raises(error) as refused:
        await crib.call(saying_after(lambda: happens(crib)))

    assert type(refused.value) is error
    assert refused.value.next_action is not None
    assert before.calls == []
    assert not await crib.is_approved(), "the answer is not stored"


@pytest.mark.anyio
async def test_a_crib_checks_its_current_catalog_after_the_answer() -> None:
    crib, source = Toolcrib(policy=ASK), ScriptedSource("git", [PUSH])
    crib.add_source(source)
    async with crib:
        await crib.ready()
        asked = CallContext(client=saying_after(lambda: crib.registry.unregister(PUSH.id)))
        with pytest.raises(ToolNotFound):
            await crib.call_tool(PUSH.handle, TO_HOME, context=asked)
    assert source.calls == []


@pytest.mark.anyio
async def test_unrelated_changes_during_the_question_do_not_invalidate_the_answer() -> None:
    crib = Changing()

    def move_on() -> None:
        crib.registry.register_source(SourceEntry(ScriptedSource("hg"), SourceStatus.READY), [tool("hg.push")])
        crib.move(title="Git", warnings=("slow",))
        crib.obey(Rules((), Access.CALL))

    assert (await crib.call(saying_after(move_on))).structured_content == TO_HOME
    assert await crib.is_approved()


@pytest.mark.anyio
async def test_a_source_that_lost_trust_during_the_question_cannot_claim_read_only() -> None:
    reading = replace(PUSH, annotations=ToolAnnotations(read_only=True))
    crib = Changing()
    crib.registry.register_source(replace(crib.registry.state.sources["git"], trusted=True), [reading])
    view, runner = crib.view(), Runner(view_of=crib.seen_by)

    def distrust() -> None:
        crib.registry.register_source(replace(crib.registry.state.sources["git"], trusted=False), [reading])

    context = CallContext(client=saying_after(distrust))
    with pytest.raises(NotAuthorized, match="may change something, so `call_read_only_tool` does not run it"):
        await runner.call_tool(view, reading.handle, TO_HOME, context, only_read=True)
    assert crib.source().calls == []


@pytest.mark.anyio
async def test_scopes_lost_during_the_question_no_longer_count() -> None:
    admin = Rules((Rule(Access.ASK, scopes=("admin",)),), Access.SEE)
    crib, scopes = Changing(policy=admin), {"admin"}

    def now() -> Principal:
        return replace(LOCAL, scopes=frozenset(scopes))

    runner, view = Runner(view_of=crib.seen_by), crib.view(now())
    context = CallContext(now(), client=saying_after(scopes.clear), returned_as=now)
    with pytest.raises(NotAuthorized, match="is not allowed to call"):
        await runner.call_tool(view, PUSH.handle, TO_HOME, context)
    assert crib.source().calls == []


# -- calls that pause -------------------------------------------------------------------------------------------------

PAUSED = ToolResult({"resultType": "input_required", "inputRequests": {}, "requestState": "state"})


async def paused(runner: Runner, view: View, result: ToolResult = PAUSED, **more: Any) -> Resumption:
    """Approve a call once that asks for input, and return what the client sends back."""
    source_of(view, "git").answers["push"] = result
    told = await run(runner, view, saying("once"), **more)
    assert told.needs_input
    del source_of(view, "git").answers["push"]
    return Resumption.of(RESPONSES, told.wire["requestState"])


@pytest.mark.anyio
async def test_a_resumed_call_asks_no_second_time_and_a_new_call_does() -> None:
    runner, view = Runner(), view_for()
    back = await paused(runner, view)

    assert not await was_asked(runner, view, resumed=back)
    assert await was_asked(runner, view, resumed=back), "the approval was already used"
    assert await was_asked(runner, view)


@pytest.mark.anyio
async def test_a_call_may_pause_more_than_once() -> None:
    runner, view = Runner(), view_for()
    first = await paused(runner, view)
    second = await paused_again(runner, view, first)

    assert not await was_asked(runner, view, resumed=second)
    for used in (first, second):
        assert await was_asked(runner, view, resumed=used)


async def paused_again(runner: Runner, view: View, back: Resumption) -> Resumption:
    """Resume a call that asks for input again without a question about approval."""
    source_of(view, "git").answers["push"] = PAUSED
    told = await run(runner, view, saying("no"), resumed=back)
    del source_of(view, "git").answers["push"]
    return Resumption.of(RESPONSES, told.wire["requestState"])


@pytest.mark.anyio
async def test_paused_calls_of_other_principals_do_not_displace_an_approval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("toolcrib.operations.calling.approver.MAX_PAUSED", 10)
    approver = Approver()

    def back(principal: str) -> tuple[Intent, CallContext]:
        intent = Intent(principal, "git.push", "definition", "Send commits away.", {})
        state = approver.paused(intent, "once", PAUSED.wire)["requestState"]
        return intent, CallContext(Principal(principal), resumed=Resumption.of(RESPONSES, state))

    mine, eves = back("ada"), [back("eve") for _ in range(100)]

    assert await approver.ask(*mine) == "once"
    assert await approver.ask(*eves[-1]) == "once"
    with pytest.raises(NotAuthorized):
        await approver.ask(*eves[0])


@pytest.mark.anyio
@pytest.mark.parametrize(
    "made_up",
    [
        Resumption(RESPONSES),
        Resumption(RESPONSES, "state"),
        Resumption({}, "state"),
        Resumption.of(RESPONSES, "toolcrib-approved:"),
        Resumption.of(RESPONSES, "toolcrib-approved:guessed:state"),
    ],
    ids=str,
)
async def test_a_made_up_resumption_needs_approval(made_up: Resumption) -> None:
    runner, view = Runner(), view_for()
    assert await was_asked(runner, view, resumed=made_up)
    back = await paused(runner, view)

    assert await was_asked(runner, view, resumed=made_up)
    assert await was_asked(runner, view)
    with pytest.raises(NotAuthorized):
        await run(runner, view, None, resumed=made_up)
    assert not await was_asked(runner, view, resumed=back)


@pytest.mark.anyio
async def test_a_resumption_of_a_different_call_needs_approval() -> None:
    runner, view = Runner(), view_for()
    back = await paused(runner, view)

    assert await was_asked(runner, view, {"to": "elsewhere"}, resumed=back)
    assert await was_asked(runner, view_for(Principal("grace")), resumed=back)
    assert await was_asked(runner, view_for(LOCAL, replace(PUSH, name="pull")), resumed=back)
    assert await was_asked(runner, view_for(LOCAL, replace(PUSH, description="Another.")), resumed=back)
    assert not await was_asked(runner, view, resumed=back)


@pytest.mark.anyio
async def test_two_equal_paused_calls_are_each_resumed_with_their_own_approval() -> None:
    runner, view = Runner(), view_for()
    backs = [await paused(runner, view) for _ in range(2)]

    assert [await was_asked(runner, view, resumed=back) for back in [*backs, *backs]] == [False, False, True, True]


@pytest.mark.anyio
async def test_the_approval_of_a_paused_call_expires() -> None:
    now_s = 1_000.0
    runner, view = Runner(approver=Approver(now_s=lambda: now_s)), view_for()
    soon, late = await paused(runner, view), await paused(runner, view)

    now_s += ANSWER_S - 1
    assert not await was_asked(runner, view, resumed=soon)
    now_s += 1
    assert await was_asked(runner, view, resumed=late)


@pytest.mark.anyio
@pytest.mark.parametrize("state", ["", "state", ":a:b:", None])
async def test_a_source_receives_its_own_state_unchanged(state: str | None) -> None:
    runner, view = Runner(), view_for()
    asks: dict[str, Any] = {"resultType": "input_required", "inputRequests": {}}
    wire = asks | ({} if state is None else {"requestState": state})
    back = await paused(runner, view, ToolResult(wire))

    assert (back.state, back.responses) == (state, RESPONSES)
    assert not await was_asked(runner, view, resumed=back)


@pytest.mark.anyio
async def test_a_paused_call_needs_approval_again_after_a_permanent_approval_was_revoked() -> None:
    runner, view = Runner(), view_for()
    await run(runner, view, saying("always"))
    source_of(view, "git").answers["push"] = PAUSED
    told = await run(runner, view, saying("no"))
    back = Resumption.of(RESPONSES, told.wire["requestState"])

    runner.approver.approvals = MemoryApprovals()
    assert back.state == "state"
    assert await was_asked(runner, view, resumed=back)


@pytest.mark.anyio
async def test_a_call_that_asks_for_input_fails_without_a_client_that_can_answer() -> None:
    view = View.of(registry_of(PUSH).state)
    source_of(view, "git").answers["push"] = PAUSED

    with pytest.raises(ToolFailed, match="asks for input, but your client cannot be asked for it") as failed:
        await Runner().call_tool(view, PUSH.handle, TO_HOME, CallContext())
    assert failed.value.next_action is not None
    assert failed.value.next_action.operation == "search_tools"


@pytest.mark.anyio
async def test_an_approval_is_used_by_only_one_of_two_concurrent_resumptions() -> None:
    runner, view = Runner(), view_for()
    back = await paused(runner, view)
    asked: list[bool] = []

    async def come_back() -> None:
        asked.append(await was_asked(runner, view, resumed=back))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(come_back)
        tasks.start_soon(come_back)
    assert sorted(asked) == [False, True]
    assert len(source_of(view, "git").calls) == 2  # the paused call and the resumed call


@pytest.mark.anyio
async def test_an_approved_call_that_failed_needs_approval_again() -> None:
    runner, view = Runner(), view_for()
    back = await paused(runner, view)
    source_of(view, "git").answers["push"] = ToolFailed("No.")
    with pytest.raises(ToolFailed):
        await run(runner, view, saying("no"), resumed=back)

    assert await was_asked(runner, view, resumed=back)
    assert await was_asked(runner, view)


# -- concurrency ------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_concurrent_calls_are_approved_independently() -> None:
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
    """Has a resource, and a prompt that asks for input if `pauses` is set."""

    def __init__(self) -> None:
        super().__init__("library")
        self.asked: list[str] = []
        self.pauses = False

    async def fetch(self, method: FetchMethod, params: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        self.asked.append(method)
        return PAUSED.wire if self.pauses else {"messages": [], "contents": []}


MEMO = "toolcrib://library/memo://1"


def library_and_view() -> tuple[Library, View]:
    registry, library = ToolRegistry(), Library()
    extras = Extras(prompts=({"name": "plan"},), resources=({"uri": "memo://1", "name": "one"},))
    registry.register_source(SourceEntry(library, SourceStatus.READY, extras=extras))
    ask = Rules((Rule(Access.ASK, sources=("library",)),), Access.HIDDEN)
    return library, View.of(registry.state, policy=ask)


@pytest.mark.anyio
async def test_reading_a_resource_needs_approval_each_time() -> None:
    library, view = library_and_view()
    runner, person = Runner(), saying("once")
    for _ in range(2):
        await read_resource(view, MEMO, CallContext(client=person), runner=runner)

    assert len(person.asked) == len(library.asked) == 2
    assert "memo://1" in person.asked[0]["message"]
    assert person.asked[0]["requestedSchema"]["properties"]["answer"]["enum"] == ["once", "no"]
    for refusing in (saying("no"), saying("always"), None):
        with pytest.raises(NotAuthorized):
            await read_resource(view, MEMO, CallContext(client=refusing), runner=runner)
    assert len(library.asked) == 2


@pytest.mark.anyio
async def test_a_resumed_prompt_request_asks_no_second_time() -> None:
    library, view = library_and_view()
    runner, person = Runner(), saying("once")
    context = CallContext(client=person)

    async def get(day: str, resumed: Resumption | None = None) -> Mapping[str, Any]:
        return await get_prompt(view, "library__plan", {"day": day}, replace(context, resumed=resumed), runner=runner)

    library.pauses = True
    back = Resumption.of(RESPONSES, (await get("monday"))["requestState"])
    assert back.state == "state"
    assert "monday" in person.asked[0]["message"]
    library.pauses = False
    await get("tuesday", back)
    assert len(person.asked) == 2
    await get("monday", back)
    assert len(person.asked) == 2
    for stale in (back, Resumption(RESPONSES, "state")):
        await get("monday", stale)
    assert len(person.asked) == 4


@pytest.mark.anyio
@pytest.mark.parametrize(("harsher", "error"), [(Access.HIDDEN, NotFound), (Access.SEE, NotAuthorized)])
async def test_a_resource_that_became_forbidden_during_the_question_is_not_read(
    harsher: Access, error: type[ToolcribError]
) -> None:
    library, view = library_and_view()
    views = [view]
    runner = Runner(view_of=lambda _: views[-1])
    person = saying_after(lambda: views.append(View.of(view.visible.state, policy=Rules((), harsher))), "once")

    with pytest.raises(error):
        await read_resource(view, MEMO, CallContext(client=person), runner=runner)
    assert library.asked == []


@pytest.mark.anyio
async def test_a_resource_is_not_read_if_its_server_changed_during_the_question() -> None:
    library, view = library_and_view()
    other = Library()
    registry = ToolRegistry()
    registry.register_source(replace(view.sources["library"], source=other))
    views = [view]
    runner = Runner(view_of=lambda _: views[-1])
    person = saying_after(lambda: views.append(View.of(registry.state, policy=ASK)), "once")

    with pytest.raises(NotAuthorized, match="it changed while a person was being asked"):
        await read_resource(view, MEMO, CallContext(client=person), runner=runner)
    assert library.asked == other.asked == []


@pytest.mark.anyio
async def test_a_prompt_that_asks_for_input_fails_without_a_client_that_can_answer() -> None:
    library, view = library_and_view()
    library.pauses = True
    free = View.of(view.visible.state)

    with pytest.raises(ToolFailed, match="asks for input, but your client cannot be asked for it"):
        await get_prompt(free, "library__plan", None, CallContext(), runner=Runner())
