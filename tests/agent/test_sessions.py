"""Sessions: the operations on one's behalf, a conversation, and tools that nobody else has."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from toolcrib import Toolcrib
from toolcrib.agent.conversation.events import Corrected, EvaluationBegan
from toolcrib.catalog.access import Access, Rule, Rules
from toolcrib.core.errors import InvalidPrompt, InvalidTool, NotAuthorized, ToolNotFound
from toolcrib.core.principal import Principal

pytestmark = pytest.mark.anyio


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def other() -> Callable[[str], str]:
    """A function of the same name."""

    def add(text: str) -> str:
        """Append a text."""
        return text

    return add


async def test_a_function_of_a_session_is_found_expanded_and_called_there() -> None:
    session = Toolcrib().session()
    tool = session.tool_of(session.add(add))
    assert [each.tool_id for each in session.search_tools("add numbers").results] == [tool.id]
    assert session.expand_tool(tool.id).args_schema["required"] == ["a", "b"]
    assert (await session.call_tool(session.expand_tool(tool.id).handle, {"a": 1, "b": 2})).text == "3"
    assert (await session.call_tool(tool.handle, {"a": 1, "b": 2})).text == "3"


async def test_nobody_else_sees_it_not_even_by_its_handle() -> None:
    crib = Toolcrib()
    one, two = crib.session(), crib.session()
    tool = one.tool_of(one.add(add))
    for stranger in (two, crib):
        assert not stranger.search_tools("add numbers").results
        assert not stranger.list().nodes
        with pytest.raises(ToolNotFound):
            stranger.expand_tool(tool.id)
        with pytest.raises(ToolNotFound):
            await stranger.call_tool(tool.handle, {"a": 1, "b": 2})


async def test_two_sessions_may_have_different_tools_of_one_id() -> None:
    crib = Toolcrib()
    one, two = crib.session(), crib.session()
    first, second = one.tool_of(one.add(add)), two.tool_of(two.add(other()))
    assert first.id == second.id
    assert (await one.call_tool(first.handle, {"a": 1, "b": 2})).text == "3"
    assert (await two.call_tool(second.handle, {"text": "x"})).text == "x"


async def test_a_function_that_is_there_stays_what_it_is() -> None:
    session = Toolcrib().session()
    first = session.tool_of(session.add(add))
    assert session.tool_of(session.add(add, name="another")) is first
    assert len(session.view().tools) == 1


async def test_those_of_one_group_differ_by_name_and_those_of_two_need_not() -> None:
    session = Toolcrib().session()
    one = session.tool_of(session.add(add, group="sums"), group="sums")
    two = session.tool_of(session.add(add, group="texts"), group="texts")
    assert one.id != two.id
    with pytest.raises(InvalidTool, match="already has a tool"):
        session.add(other(), group="sums")
    assert {*session.view().tools} == {one.id, two.id}


async def test_groups_whose_names_are_spelled_alike_stay_apart() -> None:
    session = Toolcrib().session()
    ids = {session.tool_of(session.add(add, group=group), group=group).id for group in ("a.b", "a-b", "a_b", "a b", "")}
    assert len(ids) == 5
    assert {*session.view().tools} == ids


async def test_the_same_functions_have_the_same_handles_in_the_next_session() -> None:
    def handles() -> list[str]:
        session = Toolcrib().session()
        return [session.tool_of(session.add(add, group=group), group=group).handle for group in ("a", "a.b")]

    assert handles() == handles()


async def test_policy_holds_for_tools_of_a_session() -> None:
    rules = Rules((Rule(Access.SEE, principals=("guest",)),), Access.CALL)
    crib = Toolcrib(policy=rules)
    guest, owner = crib.session(principal=Principal("guest")), crib.session()
    seen = guest.tool_of(guest.add(add))
    assert guest.expand_tool(seen.id).obstacle
    with pytest.raises(NotAuthorized):
        await guest.call_tool(seen.handle, {"a": 1, "b": 2})
    assert (await owner.call_tool(owner.tool_of(owner.add(add)).handle, {"a": 1, "b": 2})).text == "3"


async def test_a_conversation_is_saved_and_gone_on_with() -> None:
    crib = Toolcrib()
    session = crib.session()
    session.dispatch(EvaluationBegan("Compute.", (), "Go."), Corrected("As JSON."))
    restored = crib.session(saved=session.to_json())
    assert restored.conversation.state == session.conversation.state
    assert restored.to_json() == session.to_json()
    assert crib.session().conversation.state.messages == ()


@pytest.mark.parametrize("saved", ["", "{}", "nothing"])
async def test_what_was_not_saved_by_a_session_begins_none(saved: str) -> None:
    with pytest.raises(InvalidPrompt, match="Not a saved conversation"):
        Toolcrib().session(saved=saved)


async def test_functions_of_a_session_are_added_by_a_decorator_too_and_stay_functions() -> None:
    session = Toolcrib().session()

    @session.add(group="texts")
    def shout(text: str) -> str:
        """Say it loudly."""
        return text.upper()

    assert shout("ho") == "HO"
    assert (await session.call_tool(session.tool_of(shout, group="texts").handle, {"text": "ho"})).text == "HO"
    with pytest.raises(ToolNotFound, match="`shout` was not added"):
        session.tool_of(shout)
