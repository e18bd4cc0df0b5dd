"""The results that `make conformance` reports as surprises. The make target runs the suite itself."""

from __future__ import annotations

import pytest
from tests.interop.conformance import PAGE, Check, Verdict, expected_failures, surprises, with_absent, worst

PING = Check("gateway", "2025-11-25", "ping", "ping")
PING_ALONE = Check("fixture", "2025-11-25", "ping", "ping")

PASSED, FAILED = Verdict("SUCCESS"), Verdict("FAILURE", "no answer")


def test_an_unexpected_failure_is_a_surprise() -> None:
    assert surprises({PING: PASSED}, {}) == []
    assert surprises({PING: FAILED}, {}) == ["gateway, 2025-11-25: ping: ping is FAILURE, not SUCCESS (no answer)"]


def test_a_check_that_passes_although_a_failure_is_listed_is_a_surprise() -> None:
    assert surprises({PING: FAILED}, {PING: "FAILURE"}) == []
    assert surprises({PING: PASSED}, {PING: "FAILURE"}) == ["gateway, 2025-11-25: ping: ping is SUCCESS, not FAILURE"]
    assert surprises({PING: FAILED}, {PING: "WARNING"}) != []


def test_a_listed_check_that_is_not_reported_is_a_surprise_if_the_suite_ran() -> None:
    other = Check("gateway", "2025-11-25", "gone", "gone")
    assert surprises({PING: PASSED}, {other: "FAILURE"}) == ["gateway, 2025-11-25: gone: gone is ABSENT, not FAILURE"]
    assert surprises({PING_ALONE: PASSED}, {other: "FAILURE"}) == []


def test_a_check_that_passes_without_the_gateway_and_is_missing_behind_it_is_absent() -> None:
    more_alone = Check("fixture", "2025-11-25", "ping", "again")
    alone = {PING_ALONE: PASSED, more_alone: PASSED}
    found = with_absent({**alone, PING: PASSED}, alone)
    assert found.keys() - {*alone, PING} == {Check("gateway", "2025-11-25", "ping", "again")}
    assert with_absent({**alone, PING: PASSED}, {PING_ALONE: PASSED, more_alone: FAILED}) == {**alone, PING: PASSED}


def test_a_check_that_is_reported_several_times_counts_with_its_worst_outcome() -> None:
    reported = [
        {"id": "a", "status": "SUCCESS"},
        {"id": "a", "status": "WARNING", "errorMessage": "late"},
        {"id": "a", "status": "SUCCESS"},
        {"id": "b", "status": "INFO"},
    ]
    assert worst(reported) == {"a": Verdict("WARNING", "late")}


def test_each_row_of_the_page_is_read_for_every_target_it_names() -> None:
    row = "| 2026-07-28 | `caching` | `a-check` | WARNING | gateway; gateway, older server | because |"
    assert expected_failures(f"| Revision | Scenario |\n|---|---|\n{row}\n") == {
        Check("gateway", "2026-07-28", "caching", "a-check"): "WARNING",
        Check("gateway, older server", "2026-07-28", "caching", "a-check"): "WARNING",
    }
    with pytest.raises(ValueError, match="nowhere"):
        expected_failures(row.replace("gateway;", "nowhere;"))


def test_a_row_can_be_about_toolcrib_as_a_client_of_an_earlier_revision_or_an_extension() -> None:
    for revision in ("2025-03-26", "extension"):
        row = f"| {revision} | `auth/x` | `a-check` | FAILURE | client | because |"
        assert expected_failures(row) == {Check("client", revision, "auth/x", "a-check"): "FAILURE"}


def test_every_row_of_the_page_gives_a_reason() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(("| 202", "| extension"))]
    assert len(expected_failures("\n".join(rows))) >= len(rows) > 0
    assert all(row.rstrip("| ").rpartition("|")[2].strip() for row in rows)
