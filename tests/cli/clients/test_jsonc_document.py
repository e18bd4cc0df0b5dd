"""Changes to hand-written JSON: the requested change is made, and every comment outside it is preserved."""

from __future__ import annotations

import json
import re
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.cli.clients.jsonc_document import JsoncDocument, MalformedJson, dump

NEW = dump({"command": "x", "args": ["serve"]})


def changed(text: str, *path: str, **changes: str | None) -> str:
    return JsoncDocument(text).with_members(path, changes).text


# -- reading ----------------------------------------------------------------------------------------------------------


def test_comments_and_trailing_commas_are_accepted() -> None:
    text = '// one\n{ /* two */ "a": ["//no", "/*no*/",], // three\n "b": {"c": 1,},\n}\n'
    assert JsoncDocument(text).value == {"a": ["//no", "/*no*/"], "b": {"c": 1}}


@pytest.mark.parametrize("text", ["", "  \n", "// nothing yet\n", "/* nor here */"])
def test_a_file_without_content_is_an_empty_object(text: str) -> None:
    assert JsoncDocument(text).value == {}
    assert JsoncDocument(text).at(("mcpServers",)) is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "line 1, column 2"),
        ('{\n  "a": 1\n  "b": 2\n}', "line 3, column 3"),
        ("[]", "the file must contain an object"),
        ('{"a": NaN}', "`NaN` is not valid JSON"),
        ('{"a": 1} {"b": 2}', "Extra data"),
        ('{"a": "unended}', "line 1, column 7"),
        ('{/* unended "a": 1}', "line 1, column 2"),
        ('{"a": ' + "[" * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 10_000 + "}", "4300"),
        ("null", "the file must contain an object"),
    ],
)
def test_a_file_that_is_not_an_object_is_refused_with_the_position(text: str, complaint: str) -> None:
    with pytest.raises(MalformedJson, match=re.escape(complaint)):
        JsoncDocument(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"a": 1, "a": {"b": {}}}', "duplicate key `a`"),
        ('{"a": {"b": {}, "b": {}}}', "duplicate key `a.b`"),
        ('{"a": {"b": []}}', "a.b: must be an object"),
        ('{"a": null}', "a: must be an object"),
    ],
)
def test_a_path_that_does_not_lead_to_exactly_one_object_is_refused(text: str, complaint: str) -> None:
    document = JsoncDocument(text)
    with pytest.raises(MalformedJson, match=re.escape(complaint)):
        document.at(("a", "b"))
    with pytest.raises(MalformedJson, match=re.escape(complaint)):
        document.with_members(("a", "b"), {"c": "1"})


def test_a_duplicate_key_is_not_changed() -> None:
    with pytest.raises(MalformedJson, match="duplicate key `a`"):
        changed('{"a": 1, "a": 2}', a=None)


def test_raw_values_include_their_comments_and_are_indented_by_two() -> None:
    text = '{\n\t"s": {\n\t\t"git": {\n\t\t\t"args": [\n\t\t\t\t"x" // why\n\t\t\t]\n\t\t}\n\t}\n}'
    assert JsoncDocument(text).raw(("s", "git")) == '{\n  "args": [\n    "x" // why\n  ]\n}'
    assert JsoncDocument(text).raw(("s", "other")) is None
    assert JsoncDocument(text).raw(("t", "other")) is None


# -- inserting --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "s": {\n    "t": 1\n  }\n}\n'),
        ("// mine\n", '// mine\n{\n  "s": {\n    "t": 1\n  }\n}\n'),
        ("{}", '{\n  "s": {\n    "t": 1\n  }\n}'),
        ('{"a": 1}', '{"a": 1, "s": { "t": 1 }}'),
        ('{"s":{}}\n', '{"s":{\n  "t": 1\n}}\n'),
        ('{\n    "a": 1\n}\n', '{\n    "a": 1,\n    "s": {\n        "t": 1\n    }\n}\n'),
        ('{\n\t"s": {}\n}', '{\n\t"s": {\n\t\t"t": 1\n\t}\n}'),
        ('{\n  "s": {\n    "a": 1\n  }\n}', '{\n  "s": {\n    "a": 1,\n    "t": 1\n  }\n}'),
        ('{\n  "s": {\n    "a": 1, // one\n  }\n}', '{\n  "s": {\n    "a": 1, // one\n    "t": 1,\n  }\n}'),
        ('{\n  "s": {\n    "a": 1 // one\n  }\n}', '{\n  "s": {\n    "a": 1, // one\n    "t": 1\n  }\n}'),
        ('{\n  "s": {\n    // none\n  }\n}', '{\n  "s": {\n    // none\n    "t": 1\n  }\n}'),
        ('{\n  "s": {"a": 1}\n}', '{\n  "s": {"a": 1, "t": 1}\n}'),
        ('{\n  "s": { "a": 1, "t": 2 }\n}', '{\n  "s": { "a": 1, "t": 1 }\n}'),
    ],
)
def test_a_new_member_follows_the_layout_of_the_existing_members(before: str, after: str) -> None:
    assert changed(before, "s", t="1") == after


def test_line_endings_are_preserved() -> None:
    after = changed('{\r\n  "s": {\r\n    "a": 1\r\n  }\r\n}\r\n', "s", t=NEW)
    assert "\n" not in after.replace("\r\n", "")
    assert JsoncDocument(after).value == {"s": {"a": 1, "t": json.loads(NEW)}}


def test_a_new_value_is_indented_like_the_rest_of_the_file() -> None:
    after = changed('{\n    "s": {\n    }\n}\n', "s", t=NEW)
    assert '\n        "t": {\n            "command": "x",\n            "args": [\n                "serve"\n' in after


def test_a_lone_surrogate_is_written_as_an_escape() -> None:
    after = changed("{}", a=dump({"name": "\ud800", "place": "小屋"}))
    assert after.encode()
    assert JsoncDocument(after).value == {"a": {"name": "\ud800", "place": "小屋"}}


# -- removing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"t": 1}', "{}"),
        ('{"a": 1, "t": 2}', '{"a": 1}'),
        ('{"t": 2, "a": 1}', '{"a": 1}'),
        ('{"a": 1, "t": 2, "b": 3}', '{"a": 1, "b": 3}'),
        ('{\n  "a": 1,\n  "t": {\n    "x": [1,\n 2]\n  }\n}', '{\n  "a": 1\n}'),
        ('{\n  "t": 2,\n  "a": 1\n}', '{\n  "a": 1\n}'),
        ('{\n  "a": 1,\n  "t": 2,\n}', '{\n  "a": 1,\n}'),
        ('{\n  "a": 1,\n  "t": 2, // handy\n}', '{\n  "a": 1,\n  // handy\n}'),
        ('{\n  "a": 1,\n  // handy\n  "t": 2\n}', '{\n  "a": 1\n  // handy\n}'),
        ('{\n  "a": 1\n  , "t": 2\n}', '{\n  "a": 1\n}'),
        ('{\n  "t": 1 /* one */, // two\n  "a": 2\n}', '{\n  /* one */ // two\n  "a": 2\n}'),
        ("{\n}", "{\n}"),
    ],
)
def test_removing_a_member_removes_its_line_and_comma_and_preserves_comments(before: str, after: str) -> None:
    assert changed(before, t=None) == after


def test_a_new_member_takes_the_position_of_a_removed_member() -> None:
    before = '{\n  "s": {\n    // clock\n    "time": {"command": "uvx"},\n    "git": {},\n  },\n}\n'
    after = '{\n  "s": {\n    // clock\n    "t": 1,\n  },\n}\n'
    assert changed(before, "s", time=None, git=None, t="1") == after
    assert changed('{"a": 1, "b": 2}', a=None, b=None, t="3") == '{"t": 3}'


def test_removing_a_missing_member_changes_nothing() -> None:
    text = '{ "s" : {"a":1} }'
    assert changed(text, "s", t=None) == text
    assert changed(text, "u", "v", t=None) == text


# -- as a law ---------------------------------------------------------------------------------------------------------

KEYS = st.sampled_from(["a", "b", "git", "tool crib", 'q"uote', "//", "", "小"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.sampled_from(["", "x", "/* no */", "a, b", "}", "\\", "é"])
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))
GAPS = st.sampled_from(["", " ", "\n\t"])
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=5)


@st.composite
def written(draw: st.DrawFn, value: dict[str, Any]) -> str:
    """`value` as a person may have written it; each comment has its own number."""
    numbers = count()
    newline = draw(st.sampled_from(["\n", "\r\n", ""]))

    def space() -> str:
        kinds = [" ", "", "  ", "\t", newline, "comment"] + ["line"] * bool(newline)
        kind = draw(st.sampled_from(kinds))
        return {"comment": f"/*c{next(numbers)},*/", "line": f"//c{next(numbers)}\\{newline}"}.get(kind, kind)

    def text(value: Any) -> str:
        if isinstance(value, dict):
            members = [f"{json.dumps(key)}{draw(GAPS)}:{draw(GAPS)}{text(part)}" for key, part in value.items()]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            return listed("{", members, "}")
        if isinstance(value, list):
            return listed("[", [text(part) for part in value], "]")  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return json.dumps(value, ensure_ascii=False)

    def listed(opens: str, parts: list[str], closes: str) -> str:
        trailing = "," if parts and draw(st.booleans()) else ""
        return opens + ",".join(f"{space()}{part}{space()}" for part in parts) + trailing + space() + closes

    return space() + text(value) + space()


def comments(text: str) -> list[str]:
    return re.findall(r"/\*c\d+,\*/|//c\d+\\", text)


@given(data=st.data(), outer=OBJECTS, inner=OBJECTS, changes=st.dictionaries(KEYS, st.none() | VALUES, max_size=4))
def test_any_change_has_its_effect_and_preserves_comments_outside_replaced_values(
    data: st.DataObject, outer: dict[str, Any], inner: dict[str, Any], changes: dict[str, Any]
) -> None:
    value = {**outer, "s": inner}
    text = data.draw(written(value))
    raw = {key: None if part is None else dump(part) for key, part in changes.items()}
    before = JsoncDocument(text)
    assert before.value == value
    after = before.with_members(("s",), raw)
    put_in = {key: part for key, part in changes.items() if part is not None}
    assert after.value == {**value, "s": {key: part for key, part in inner.items() if key not in changes} | put_in}
    replaced = "".join(before.raw(("s", key)) or "" for key in changes)
    assert set(comments(text)) - set(comments(after.text)) <= set(comments(replaced))


@given(data=st.data(), value=OBJECTS, key=KEYS, part=VALUES)
def test_adding_and_then_restoring_a_member_gives_the_original_values(
    data: st.DataObject, value: dict[str, Any], key: str, part: object
) -> None:
    document = JsoncDocument(data.draw(written(value)))
    there = document.with_members((), {key: dump(part)})
    assert there.value == {**value, key: part}
    back = there.with_members((), {key: document.raw((key,))})
    assert back.value == value
