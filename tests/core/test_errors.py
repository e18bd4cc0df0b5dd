"""The error classes, and their form on the wire."""

from __future__ import annotations

import traceback

from toolcrib.core import errors
from toolcrib.core.errors import ErrorCode, NextAction, RateLimited, SourceUnavailable, ToolcribError, ToolNotFound

FAMILY = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ToolcribError)]


def test_every_error_code_has_exactly_one_error_class() -> None:
    codes = [kind.code for kind in FAMILY if "code" in vars(kind)]
    assert all(hasattr(kind, "code") for kind in FAMILY if kind is not ToolcribError)

    assert sorted(codes) == sorted(ErrorCode)


def test_an_error_on_the_wire_always_says_whether_it_is_retryable() -> None:
    assert ToolNotFound("There is none.").to_wire() == {
        "error": {"code": "TOOL_NOT_FOUND", "message": "There is none.", "retryable": False}
    }


def test_hints_next_action_and_details_are_part_of_the_wire_form() -> None:
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


def test_the_retry_delay_is_included_only_if_it_is_known() -> None:
    assert "details" not in SourceUnavailable("It is gone.").to_wire()["error"]
    gone = SourceUnavailable("It is gone.", retry_after_s=2.5)
    fast = RateLimited("Too fast.", retry_after_s=0.1)
    assert [error.to_wire()["error"]["details"] for error in (gone, fast)] == [
        {"retry_after_s": 2.5},
        {"retry_after_s": 0.1},
    ]
    assert fast.retryable, "a refused call did not run"


def test_the_string_of_an_error_is_its_message() -> None:
    assert str(ToolNotFound("There is none.")) == "There is none."


def test_a_traceback_shows_the_hints_below_the_message() -> None:
    error = ToolNotFound("There is none.", hints=["Closest: `git.log`"]).leading_to(NextAction("list"))
    shown = "".join(traceback.format_exception(error))
    assert shown.endswith("There is none.\nClosest: `git.log`\n")
