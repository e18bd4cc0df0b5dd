"""One family of errors, and its form on the wire."""

from __future__ import annotations

import traceback

from toolcrib.core import errors
from toolcrib.core.errors import ErrorCode, NextAction, RateLimited, SourceUnavailable, ToolcribError, ToolNotFound

FAMILY = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ToolcribError)]


def test_every_code_has_one_error_and_every_other_error_is_a_kind_of_one() -> None:
    codes = [kind.code for kind in FAMILY if "code" in vars(kind)]
    assert all(hasattr(kind, "code") for kind in FAMILY if kind is not ToolcribError)

    assert sorted(codes) == sorted(ErrorCode)


def test_an_error_says_what_is_known_and_always_whether_trying_again_can_help() -> None:
    assert ToolNotFound("There is none.").to_wire() == {
        "error": {"code": "TOOL_NOT_FOUND", "message": "There is none.", "retryable": False}
    }


def test_hints_next_action_and_details_travel_along() -> None:
    error = ToolNotFound(
        "There is none.",
        hints=["Look."],
        next_action=NextAction("list", {"path": ["git"]}),
        retryable=True,
        details={"upstream": {"code": 1}},
    )

    assert error.to_wire()["error"] == {
        "code": "TOOL_NOT_FOUND",
        "message": "There is none.",
        "hints": ["Look."],
        "next_action": {"operation": "list", "arguments": {"path": ["git"]}},
        "retryable": True,
        "details": {"upstream": {"code": 1}},
    }


def test_when_to_come_back_is_told_where_it_is_known_and_nowhere_else() -> None:
    assert "details" not in SourceUnavailable("It is gone.").to_wire()["error"]
    gone = SourceUnavailable("It is gone.", retry_after_s=2.5)
    fast = RateLimited("Too fast.", retry_after_s=0.1)
    assert [error.to_wire()["error"]["details"] for error in (gone, fast)] == [
        {"retry_after_s": 2.5},
        {"retry_after_s": 0.1},
    ]
    assert fast.retryable, "what was refused ran nothing"


def test_an_error_reads_as_its_message() -> None:
    assert str(ToolNotFound("There is none.")) == "There is none."


def test_a_traceback_shows_the_hints_below_the_message() -> None:
    error = ToolNotFound("There is none.", hints=["Closest: `git.log`"]).leading_to(NextAction("list"))
    shown = "".join(traceback.format_exception(error))
    assert shown.endswith("There is none.\nClosest: `git.log`\n")
