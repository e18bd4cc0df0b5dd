"""Sessions: operations on behalf of a principal, a conversation, and tools of the session."""

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
    """Return a different function with the same name."""

    def add(text: str) -> str:
        """Append a text."""
        return text

    return add


async def test_a_session_function_can_be_found_expanded_and_called() -> None:
    session = Toolcrib().session()
    tool = session.tool_of(session.add(add))
    assert [each.tool_id for each in session.search_tools("add numbers").results] == [tool.id]
    assert session.expand_tool(tool.id).args_schema["required"] == ["a", "b"]
    assert (await session.call_tool(session.expand_tool(tool.id).handle, {"a": 1, "b": 2})).text == "3"
    assert (await session.call_tool(tool.handle, {"a": 1, "b": 2})).text == "3"


async def test_session_tools_are_invisible_to_other_sessions_even_by_handle() -> None:
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


async def test_two_sessions_may_have_different_tools_with_one_id() -> None:
    crib = Toolcrib()
    one, two = crib.session(), crib.session()
    first, second = one.tool_of(one.add(add)), two.tool_of(two.add(other()))
    assert first.id == second.id
    assert (await one.call_tool(first.handle, {"a": 1, "b": 2})).text == "3"
    assert (await two.call_tool(second.handle, {"text": "x"})).text == "x"


async def test_adding_the_same_function_again_returns_the_existing_tool() -> None:
    session = Toolcrib().session()
    first = session.tool_of(session.add(add))
    assert session.tool_of(session.add(add, name="another")) is first
    assert len(session.view().tools) == 1


async def test_tool_names_are_unique_within_a_group_but_not_between_groups() -> None:
    session = Toolcrib().session()
    one = session.tool_of(session.add(add, group="sums"), group="sums")
    two = session.tool_of(session.add(add, group="texts"), group="texts")
    assert one.id != two.id
    with pytest.raises(InvalidTool, match="already has a tool"):
        session.add(other(), group="sums")
    assert {*session.view().tools} == {one.id, two.id}


async def test_groups_with_similar_names_stay_separate() -> None:
    session = Toolcrib().session()
    ids = {session.tool_of(session.add(add, group=group), group=group).id for group in ("a.b", "a-b", "a_b", "a b", "")}
    assert len(ids) == 5
    assert {*session.view().tools} == ids


async def test_the_same_functions_have_the_same_handles_in_every_session() -> None:
    def handles() -> list[str]:
        session = Toolcrib().session()
        return [session.tool_of(session.add(add, group=group), group=group).handle for group in ("a", "a.b")]

    assert handles() == handles()


async def test_the_policy_applies_to_session_tools() -> None:
    rules = Rules((Rule(Access.SEE, principals=("guest",)),), Access.CALL)
    crib = Toolcrib(policy=rules)
    guest, owner = crib.session(principal=Principal("guest")), crib.session()
    seen = guest.tool_of(guest.add(add))
    assert guest.expand_tool(seen.id).obstacle
    with pytest.raises(NotAuthorized):
        await guest.call_tool(seen.handle, {"a": 1, "b": 2})
    assert (await owner.call_tool(owner.tool_of(owner.add(add)).handle, {"a": 1, "b": 2})).text == "3"


async def test_a_saved_conversation_can_be_continued() -> None:
    crib = Toolcrib()
    session = crib.session()
    session.dispatch(EvaluationBegan("Compute.", (), "Go."), Corrected("As JSON."))
    restored = crib.session(saved=session.to_json())
    assert restored.conversation.state == session.conversation.state
    assert restored.to_json() == session.to_json()
    assert crib.session().conversation.state.messages == ()


@pytest.mark.parametrize("saved", ["", "{}", "nothing"])
async def test_text_that_is_not_a_saved_session_is_refused(saved: str) -> None:
    with pytest.raises(InvalidPrompt, match="Not a saved conversation"):
        Toolcrib().session(saved=saved)


async def test_the_decorator_adds_a_function_and_leaves_it_callable() -> None:
    session = Toolcrib().session()

    @session.add(group="texts")
    def shout(text: str) -> str:
        """Say it loudly."""
        return text.upper()

    assert shout("ho") == "HO"
    assert (await session.call_tool(session.tool_of(shout, group="texts").handle, {"text": "ho"})).text == "HO"
    with pytest.raises(ToolNotFound, match="`shout` was not added"):
        session.tool_of(shout)
