"""`toolcrib approvals`: lists permanent approvals, revokes them, and applies them to calls on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.cli.running import toolcrib
from tests.servers.launching import faulty_entry, write_config

from toolcrib import Toolcrib
from toolcrib.cli.opened_catalog import default_approvals, waiting_items
from toolcrib.core.client import SilentClient
from toolcrib.core.principal import LOCAL, CallContext
from toolcrib.operations.calling.approval_store import ApprovalStore
from toolcrib.waiting import WaitingItem


class ApprovingClient(SilentClient):
    """Approves every call permanently."""

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"action": "accept", "content": {"answer": "always"}}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A server whose tools require approval, with its own store of approvals."""
    monkeypatch.setattr("platformdirs.user_state_path", tmp_path.joinpath)
    return write_config(tmp_path / "mcp.json", toolcrib={"policy": {"otherwise": "ask"}}, bench=faulty_entry())


def approve(config: Path, tool_id: str, arguments: Mapping[str, Any]) -> None:
    """Call the tool for a person who answers `always`."""

    async def main() -> None:
        crib = Toolcrib(approvals=ApprovalStore(default_approvals()))
        crib.add_config(config)
        async with crib:
            await crib.ready()
            context = CallContext(LOCAL, client=ApprovingClient({"elicitation": {}}))
            await crib.call_tool(crib.expand_tool(tool_id).handle, arguments, context=context)

    anyio.run(main)


def test_a_permanent_approval_applies_on_the_command_line_until_it_is_revoked(config: Path) -> None:
    call = ["call", "bench.echo", '{"text": "tea"}', "-c", config]
    refused = toolcrib(*call, "--json")
    assert (refused.code, refused.json["error"]["code"]) == (1, "APPROVAL_PENDING")

    approve(config, "bench.echo", {"text": "coffee"})
    assert toolcrib(*call).out == "tea\n"

    (approval,) = toolcrib("approvals", "--json").json["approvals"]
    assert (approval["tool_id"], approval["principal"]) == ("bench.echo", "local")
    revoked = toolcrib("approvals", "--revoke", approval["number"])
    assert revoked.code == 0
    assert f"Revoked {approval['number']}: local is asked again before `bench.echo` runs." in revoked.err
    assert "No permanent approvals" in revoked.err
    assert toolcrib(*call).code == 1


def test_revoking_prints_remaining_approvals_and_as_json_the_revoked_ones(config: Path) -> None:
    approve(config, "bench.echo", {"text": "tea"})
    approve(config, "bench.pid", {})
    echo, pid = toolcrib("approvals", "--json").json["approvals"]
    report = toolcrib("approvals", "--revoke", echo["number"], "--json").json
    assert (report["approvals"], report["revoked"]) == ([pid], [echo])
    shown = toolcrib("approvals").out
    assert "bench.pid" in shown
    assert "bench.echo" not in shown


def test_revoking_an_unknown_approval_is_not_found_and_revokes_nothing(config: Path) -> None:
    approve(config, "bench.pid", {})
    (pid,) = toolcrib("approvals", "--json").json["approvals"]
    wrong = toolcrib("approvals", "--revoke", pid["number"], "--revoke", 700, "--json")
    assert (wrong.code, wrong.json["error"]["code"]) == (1, "NOT_FOUND")
    assert "700" in wrong.json["error"]["message"]
    assert toolcrib("approvals", "--json").json == {"waiting": [], "approvals": [pid], "revoked": []}


def pending(*call: object) -> str:
    """Make a call that waits, and return its id."""
    error = toolcrib(*call, "--json").json["error"]
    assert error["code"] == "APPROVAL_PENDING"
    return error["details"]["waiting_id"]


def test_a_waiting_call_is_shown_and_runs_once_when_it_is_granted(config: Path) -> None:
    call = ["call", "bench.echo", '{"text": "tea\\u202e"}', "-c", config]
    waiting = pending(*call)

    (listed,) = toolcrib("approvals", "--json").json["waiting"]
    assert (listed["id"], listed["subject"], listed["principal"]) == (waiting, "bench.echo", "local")
    overview = toolcrib("approvals")
    assert waiting in overview.out
    assert "`toolcrib approvals deny ID`" in " ".join(overview.err.split())
    shown = toolcrib("approvals", "show", waiting)
    assert "local asks to run bench.echo" in shown.out
    assert '"text": "tea\\u202e"' in shown.out, "invisible characters are escaped"
    assert toolcrib("approvals", "show", waiting, "--json").json == listed

    granted = toolcrib("approvals", "grant", waiting)
    assert (granted.code, granted.out) == (0, "")
    assert "local can run `bench.echo` once" in granted.err
    assert toolcrib(*call).code == 0
    assert pending(*call) != waiting


def test_a_denied_call_is_refused_and_a_call_granted_always_needs_no_further_answer(config: Path) -> None:
    call = ["call", "bench.echo", '{"text": "tea"}', "-c", config]
    waiting = pending(*call)
    assert toolcrib("approvals", "deny", waiting).code == 0
    assert toolcrib(*call, "--json").json["error"]["code"] == "NOT_AUTHORIZED"

    answered = toolcrib("approvals", "grant", "--always", pending(*call), "--json").json
    assert (answered["answer"], answered["answered"][0]["subject"]) == ("always", "bench.echo")
    assert [each["tool_id"] for each in toolcrib("approvals", "--json").json["approvals"]] == ["bench.echo"]
    for _ in range(2):
        assert toolcrib(*call).out == "tea\n"


def test_a_waiting_call_on_the_command_line_says_how_to_answer_it(config: Path) -> None:
    call = ["call", "bench.echo", '{"text": "tea"}', "-c", config]
    waiting = pending(*call)
    told = " ".join(toolcrib(*call).err.split())
    assert f"`toolcrib approvals grant {waiting}`" in told
    assert "Tell your user" not in told


def test_a_granted_call_that_did_not_run_yet_can_be_denied(config: Path) -> None:
    call = ["call", "bench.echo", '{"text": "tea"}', "-c", config]
    waiting = pending(*call)
    granted = toolcrib("approvals", "grant", waiting)
    assert f"toolcrib approvals deny {waiting}" in " ".join(granted.err.split())

    assert toolcrib("approvals", "deny", waiting).code == 0
    assert toolcrib(*call, "--json").json["error"]["code"] == "NOT_AUTHORIZED"


def test_calls_of_a_permanently_approved_tool_wait_no_longer(config: Path) -> None:
    first, second, third = (pending("call", "bench.echo", f"text={text}", "-c", config) for text in ("a", "b", "c"))
    other = pending("call", "bench.pid", "-c", config)

    granted = toolcrib("approvals", "grant", "--always", first, second, "--json").json
    assert [each["id"] for each in granted["answered"]] == [first, second]
    assert [each["id"] for each in toolcrib("approvals", "--json").json["waiting"]] == [other]
    assert toolcrib("approvals", "show", third).code == 1
    assert toolcrib("call", "bench.echo", "text=c", "-c", config).out == "c\n"


@pytest.mark.parametrize("answer", [["grant"], ["grant", "--always"], ["deny"], ["show"]])
def test_an_answer_to_a_call_that_does_not_wait_is_not_found(config: Path, answer: list[str]) -> None:
    waiting = pending("call", "bench.pid", "{}", "-c", config)
    assert toolcrib("approvals", "deny", waiting).code == 0
    for unknown in (waiting, "0000000000"):
        refused = toolcrib("approvals", *answer, unknown, "--json")
        assert (refused.code, refused.json["error"]["code"]) == (1, "NOT_FOUND")
        assert unknown in refused.json["error"]["message"]


def test_approvals_say_which_file_cannot_be_read(config: Path) -> None:
    pending("call", "bench.pid", "{}", "-c", config)
    waiting_items().path.write_bytes(b"no database" * 1_000)
    refused = toolcrib("approvals", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (2, "INVALID_CONFIG")
    assert "waiting.sqlite" in refused.json["error"]["message"]


def test_a_permanent_approval_is_revoked_and_reported_if_the_waiting_calls_cannot_be_read(config: Path) -> None:
    approve(config, "bench.echo", {"text": "tea"})
    approve(config, "bench.pid", {})
    waiting_items().path.write_bytes(b"no database" * 1_000)
    echo, pid = toolcrib("approvals", "--json").json["approvals"]

    revoked = toolcrib("approvals", "--revoke", echo["number"], "--json")
    assert (revoked.code, revoked.json["error"]["code"]) == (2, "INVALID_CONFIG")
    assert (revoked.json["revoked"], revoked.json["approvals"]) == ([echo], [pid])
    shown = toolcrib("approvals", "--revoke", pid["number"])
    assert shown.code == 2
    assert "Revoked" in shown.err
    assert "waiting.sqlite" in shown.err


def test_what_is_no_tool_cannot_be_approved_permanently_and_is_shown_on_one_line(config: Path) -> None:
    item = WaitingItem(
        kind="call",
        principal="local",
        subject="library: x\n  \u202esafe",
        definition="",
        server="library",
        arguments="a",
        body={"arguments": {"uri": "x"}},
    )
    waiting_items().put(item)
    refused = toolcrib("approvals", "grant", "--always", item.id)
    assert refused.code == 2
    assert "is not a tool" in refused.err
    shown = toolcrib("approvals", "show", item.id).out
    assert "library: x\u23ce  \u27e8U+202E\u27e9safe. The call waits until" in shown
    assert "library: x\u23ce" in toolcrib("approvals").out
    assert toolcrib("approvals", "grant", item.id).code == 0
