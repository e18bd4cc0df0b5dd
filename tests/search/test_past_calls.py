"""Past calls as input of search, from the audit that a crib or a different process writes."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.audit.auditing import performed, until_written
from tests.cli.running import toolcrib_process
from tests.until import until, until_blocking

from toolcrib import Toolcrib
from toolcrib.audit.audit_file import DAY_S, MAX_NAME
from toolcrib.audit.store import AuditStore
from toolcrib.core.principal import LOCAL, CallContext, Principal
from toolcrib.search.history_config import HistoryConfig
from toolcrib.search.index.history import MOST_OF_A_TOOL, History
from toolcrib.search.index.query import Query
from toolcrib.search.index.weights import WEIGHTS
from toolcrib.search.past_calls import Histories

Operation: TypeAlias = dict[str, Any]

ADA, BOB, EVE = Principal("team-ada"), Principal("team-bob"), Principal("eve")

EACH_FOR_ITSELF = HistoryConfig()
SHARED = HistoryConfig(share=(("team-*",),))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.sqlite"


@contextmanager
def reading(path: Path, config: HistoryConfig | None = EACH_FOR_ITSELF) -> Generator[Histories]:
    histories = Histories(path, poll_s=0.005)
    try:
        histories.apply(config)
        yield histories
    finally:
        histories.close()


def crib(audit: AuditStore) -> Toolcrib:
    made = Toolcrib(record=audit.record)

    def add_event(title: str) -> str:
        """Put something into the calendar."""
        return title

    def remove_event(title: str) -> str:
        """Take something out of the calendar."""
        if not title:
            raise ValueError(title)
        return title

    made.add(add_event)
    made.add(remove_event)
    return made


async def searched_and_called(
    on: Toolcrib, query: str, tool_id: str, title: str = "tea", principal: Principal = LOCAL
) -> None:
    context = CallContext(principal)
    assert tool_id in on.search_tools(query, context=context).tool_ids
    handle = on.expand_tool(tool_id, context=context).handle
    result = await on.call_tool(handle, {"title": title}, context=context)
    assert result.is_error == (not title)


def prior(histories: Histories, query: str, principal: Principal = LOCAL) -> dict[str, float]:
    history = histories.history_for(principal)
    return {} if history is None else {**history.prior(Query.parse(query), WEIGHTS)}


def known(histories: Histories, principal: Principal = LOCAL) -> History:
    found = histories.history_for(principal)
    assert found is not None
    return found


def write(path: Path, *operations: Operation) -> None:
    with AuditStore(path) as store:
        for operation in operations:
            store.record(performed(**operation))
        until_written(store)


def used(tool: str, query: str = "calendar", principal: str = "local", number: int = 0, **also: Any) -> list[Operation]:
    """A search that showed `tool` and a call of the tool, in one trace."""
    both: Operation = {"trace_id": f"{number:032x}", "principal": principal, "tool_ids": (tool,), **also}
    return [{**both, "query": query}, {**both, "query": None, "operation": "call_tool"}]


@pytest.mark.anyio
async def test_a_search_and_its_call_count_for_their_principal(path: Path) -> None:
    with AuditStore(path) as audit, reading(path) as histories:
        on = crib(audit)
        assert histories.history_for(LOCAL) is None
        await searched_and_called(on, "put my tea date into the calendar", "functions.add_event")
        await until(lambda: prior(histories, "a tea date for the calendar, put it in"), "it is read")
        assert prior(histories, "put my tea date into the calendar") == pytest.approx({"functions.add_event": 1.0})
        await searched_and_called(on, "calendar dates without tea", "functions.remove_event")
        await until(
            lambda: "functions.remove_event" in prior(histories, "calendar dates without tea"), "it is followed"
        )
        assert histories.history_for(ADA) is None


@pytest.mark.anyio
async def test_failed_calls_and_calls_without_a_search_do_not_count(path: Path) -> None:
    with AuditStore(path) as audit, reading(path) as histories:
        on = crib(audit)
        handle = on.expand_tool("functions.add_event").handle
        await on.call_tool(handle, {"title": "tea"})
        await searched_and_called(on, "calendar cleaning", "functions.remove_event", title="")
        await searched_and_called(on, "calendar tea", "functions.add_event")
        await until(lambda: prior(histories, "calendar tea"), "what counts is read")
        assert (len(known(histories)), known(histories).tool_ids) == (1, ("functions.add_event",))


def test_settle_waits_until_all_earlier_calls_are_read(path: Path) -> None:
    write(path, *(step for number in range(500) for step in used("a.b", f"calendar {number}", number=number)))
    with reading(path) as histories:
        assert histories.settle(10)
        assert len(known(histories)) == MOST_OF_A_TOOL
        histories.apply(SHARED)
        assert histories.settle(10)
        assert histories.history_for(ADA) is None
    with reading(path.with_name("none")) as histories:
        assert histories.settle(10)


def test_a_call_counts_for_the_last_search_that_showed_its_tool(path: Path) -> None:
    trace: Operation = {"trace_id": f"{7:032x}"}
    now = performed().at
    steps = [("first thing", ("a.x",)), ("other matter", ("a.y",)), ("second thing", ("a.x", "a.y")), (None, ("a.x",))]
    write(
        path,
        *(
            {
                **trace,
                "at": now + n,
                "query": query,
                "tool_ids": ids,
                "operation": "search_tools" if query else "call_tool",
            }
            for n, (query, ids) in enumerate(steps)
        ),
        {**trace, "at": now + 5, "principal": "eve", "query": None, "operation": "call_tool", "tool_ids": ("a.y",)},
    )
    with reading(path) as histories:
        until_blocking(lambda: histories.history_for(LOCAL), "it is read")
        assert prior(histories, "second thing") == pytest.approx({"a.x": 1.0})
        assert len(known(histories)) == 1, "a call by eve in a trace of local does not count"
        assert histories.history_for(EVE) is None


def traced(*steps: tuple[str | None, str], principal: str = "local", number: int = 7) -> list[Operation]:
    """The operations of one trace: searches with their query and the tools that they show, and calls of a tool."""
    now = performed().at
    return [
        {
            "trace_id": f"{number:032x}",
            "principal": principal,
            "at": now + at,
            "query": query,
            "tool_ids": tuple(tools.split()),
            "operation": "search_tools" if query else "call_tool",
        }
        for at, (query, tools) in enumerate(steps)
    ]


@pytest.mark.parametrize(
    ("second", "tool", "is_doubted"),
    [
        ("take tea date out of calendar on Friday", "a.y", True),
        ("take tea date out of calendar on Friday", "a.x", False),
        ("take tea date out of calendar", "a.y", False),
        ("send a mail to Bob", "a.y", False),
    ],
    ids=["other words and another tool", "the same tool", "the same words", "a different request"],
)
def test_a_call_counts_half_if_a_reworded_search_then_led_to_a_different_tool(
    path: Path, second: str, tool: str, is_doubted: bool
) -> None:
    first = "take tea date out of calendar"
    write(path, *traced((first, "a.x"), (None, "a.x"), (second, "a.x a.y"), (None, tool)))
    with reading(path) as histories:
        assert histories.settle(10)
        history = known(histories)
        (votes,) = history.pair_votes[history.pairs[:, 1] == history.tool_ids.index("a.x")][:1]
        assert votes == (1 if is_doubted else 2)


def test_the_tools_of_a_trace_are_learned_in_order_and_principals_are_kept_apart(path: Path) -> None:
    steps = [("first thing", "a.x"), (None, "a.x"), ("other matter", "a.y"), (None, "a.y"), (None, "a.y")]
    write(
        path,
        *(each for number in range(3) for each in traced(*steps, number=number)),
        *traced(("third", "a.z"), (None, "a.z"), principal="team-ada"),
    )
    with reading(path) as histories:
        assert histories.settle(10)
        assert known(histories).following("a.x") == ("a.y",)
        assert known(histories).following("a.y") == ()
        assert known(histories, ADA).following("a.x") == ()


def test_a_principal_sees_only_the_history_of_its_own_group(path: Path) -> None:
    write(path, *used("a.x", principal=ADA.id), *used("a.y", principal=EVE.id, number=1))
    with reading(path, SHARED) as histories:
        until_blocking(lambda: histories.history_for(ADA), "it is read")
        assert histories.history_for(ADA) is histories.history_for(BOB), "a group shares"
        assert known(histories, BOB).tool_ids == ("a.x",)
        assert known(histories, EVE).tool_ids == ("a.y",)
        assert histories.history_for(LOCAL) is None


def test_sharing_can_change_at_run_time_and_unshared_history_is_hidden_at_once(path: Path) -> None:
    write(path, *used("a.x", principal=ADA.id), *used("a.y", principal=BOB.id, number=1))
    with reading(path, SHARED) as histories:
        until_blocking(lambda: histories.history_for(BOB), "it is read")
        histories.apply(EACH_FOR_ITSELF)
        found = histories.history_for(BOB)
        assert found is None or found.tool_ids == ("a.y",), "at once"
        until_blocking(lambda: histories.history_for(BOB), "it is read again")
        assert known(histories, BOB).tool_ids == ("a.y",)
        histories.apply(None)
        assert histories.history_for(BOB) is None


def test_a_replaced_audit_file_of_a_different_process_is_followed(path: Path) -> None:
    with reading(path) as histories:
        write(path, *used("a.x"))
        until_blocking(lambda: histories.history_for(LOCAL), "the file is there")
        for each in path.parent.glob("audit.sqlite*"):
            each.unlink()
        until_blocking(lambda: histories.history_for(LOCAL) is None, "it is gone")
        write(path, *used("a.y"))
        until_blocking(lambda: histories.history_for(LOCAL), "there is a new file")
        assert known(histories).tool_ids == ("a.y",)


def test_operations_deleted_from_the_audit_are_forgotten_and_others_are_not(path: Path) -> None:
    write(path, *used("a.x", query="secret plan"), *used("a.y", query="other plan", number=1))
    with reading(path) as histories:
        until_blocking(lambda: histories.history_for(LOCAL), "it is read")
        assert known(histories).tool_ids == ("a.x", "a.y")
        assert toolcrib_process("audit", "forget", "--path", path, "--query", "SECRET", "--yes").code == 0
        until_blocking(lambda: known(histories).tool_ids == ("a.y",), "it is forgotten")
        write(path, *used("a.z", query="third plan", number=2))
        until_blocking(lambda: "a.z" in known(histories).tool_ids, "what comes is read")


def test_calls_older_than_the_limit_do_not_count(path: Path) -> None:
    now = performed().at
    write(path, *used("a.x", at=now - 91 * DAY_S), *used("a.y", at=now - 89 * DAY_S, number=1))
    with reading(path) as histories:
        until_blocking(lambda: histories.history_for(LOCAL), "it is read")
        assert known(histories).tool_ids == ("a.y",)


def test_an_invalid_audit_file_is_logged_once_and_search_works_without_history(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_bytes(b"no database, but long enough to be taken for one" * 100)
    with reading(path) as histories:
        until_blocking(lambda: caplog.records, "it is logged")
        assert histories.history_for(LOCAL) is None
        path.unlink()
        write(path, *used("a.x"))
        until_blocking(lambda: histories.history_for(LOCAL), "there is an audit now")
    assert len(caplog.records) == 1


def test_operations_with_truncated_principal_names_count_for_no_principal(path: Path) -> None:
    long = "x" * (MAX_NAME + 1)
    write(path, *used("a.x", principal=long), *used("a.y", number=1))
    with reading(path) as histories:
        until_blocking(lambda: histories.history_for(LOCAL), "it is read")
        assert histories.history_for(Principal(long)) is None
        assert histories.history_for(Principal(long[:MAX_NAME])) is None
