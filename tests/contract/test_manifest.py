"""Every requirement has a test, and every sentence of the document is a requirement or requires nothing."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest
from tests.contract.coverage import COVERAGE, BindsNothing
from tests.contract.document import DOCUMENT, key, pieces
from tests.contract.marks import Held, marks, read
from tests.contract.requirements import REQUIREMENTS

KNOWN = {requirement.id for requirement in REQUIREMENTS}

with_document = pytest.mark.skipif(
    not DOCUMENT.is_file(), reason="the document that the contract comes from is not part of this project"
)


def test_every_requirement_has_a_test_that_runs() -> None:
    assert KNOWN - {held.requirement for held in marks() if held.runs} == set()


def test_every_mark_names_a_requirement() -> None:
    assert [held for held in marks() if held.requirement not in KNOWN] == []


def test_every_requirement_has_a_unique_id_and_text() -> None:
    for many in (Counter(requirement.id for requirement in REQUIREMENTS), Counter(r.text for r in REQUIREMENTS)):
        assert [each for each, count in many.items() if count > 1] == []


def test_every_requirement_is_from_the_document_or_a_listed_departure() -> None:
    covered = {name for answer in COVERAGE.values() if isinstance(answer, tuple) for name in answer}
    ours = {requirement.id for requirement in REQUIREMENTS if requirement.section == "departures"}

    assert covered - KNOWN == set()
    assert KNOWN - covered == ours
    assert {answer for answer in COVERAGE.values() if isinstance(answer, str)} <= {*get_args(BindsNothing)}


@with_document
def test_every_piece_of_the_document_is_covered() -> None:
    said = pieces(DOCUMENT.read_text())

    assert len(said) > 100
    assert [piece for piece in said if key(piece) not in COVERAGE] == []


@with_document
def test_no_covered_piece_is_missing_from_the_document() -> None:
    assert COVERAGE.keys() - {key(piece) for piece in pieces(DOCUMENT.read_text())} == set()


# -- reading marks and the document -----------------------------------------------------------------------------------

FILE = """
import pytest
{above}

{mark}
def {name}() -> None:
    {body}
"""


def held(
    *, mark: str = '@pytest.mark.holds("a.b")', above: str = "", name: str = "test_it", body: str = "..."
) -> list[Held]:
    return [*read(FILE.format(mark=mark, above=above, name=name, body=body), "test_x.py")]


def test_a_mark_is_read_with_all_its_requirements() -> None:
    assert held(mark='@pytest.mark.holds("a.b", "c")\n@pytest.mark.skipif(OLD, reason="")') == [
        Held("a.b", "test_x.py::test_it", runs=True),
        Held("c", "test_x.py::test_it", runs=True),
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"mark": '@pytest.mark.holds("a.b")\n@pytest.mark.skip'},
        {"mark": '@pytest.mark.skip(reason="later")\n@pytest.mark.holds("a.b")'},
        {"mark": '@pytest.mark.xfail\n@pytest.mark.holds("a.b")'},
        {"above": "pytestmark = [pytest.mark.anyio, pytest.mark.skip]"},
        {"body": 'pytest.skip("later")'},
    ],
    ids=str,
)
def test_a_test_that_is_always_skipped_does_not_count(given: dict[str, str]) -> None:
    assert [each.runs for each in held(**given)] == [False]


@pytest.mark.parametrize("given", [{"name": "helper"}, {"mark": "", "above": 'x = pytest.mark.holds("a.b")'}], ids=str)
def test_a_mark_that_is_not_on_a_test_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="no test"):
        held(**given)


def test_a_document_is_split_into_headings_sentences_and_example_members() -> None:
    text = """# A *title*

One sentence, e.g. this. Another
over two lines.

- **An item.** It goes on
  here.
1. Another

### `list`

**Request**

```json
{
  "path": ["A"],  // may be empty
  "nodes": [{"name": "a"}, {"name": "b", "limit": 3}]
}
```

| a | row |
"""

    assert pieces(text) == [
        "A title",
        "One sentence, e.g. this.",
        "Another over two lines.",
        "An item.",
        "It goes on here.",
        "Another",
        "list",
        "Request",
        "list Request path: may be empty",
        "list Request/path",
        "list Request/nodes",
        "list Request/nodes/*/name",
        "list Request/nodes/*/limit",
        "| a | row |",
    ]
    assert key("A *title*") == key("A  title") != key("a title")
