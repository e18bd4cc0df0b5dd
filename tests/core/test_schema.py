"""Violations of schemas by arguments, and which schemas are accepted."""

from __future__ import annotations

import difflib
import random
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.errors import InvalidTool
from toolcrib.core.schema import (
    MAX_ALLOWED,
    MAX_BRANCHES,
    MAX_COMPARED,
    MAX_COMPARED_CHARS,
    MAX_COMPARED_UNITS,
    MAX_EXPLANATIONS,
    MAX_JUDGED,
    MAX_VIOLATIONS,
    Schema,
    Violation,
    nearest,
    pointer,
)
from toolcrib.core.subschemas import at_reference

Json = dict[str, Any]


def violations(schema: Json, value: object) -> tuple[Violation, ...]:
    return Schema(schema).violations(value)


def only(schema: Json, value: object) -> Violation:
    (violation,) = violations(schema, value)
    return violation


def of(**properties: Any) -> Json:
    return {"type": "object", "properties": properties, "additionalProperties": False}


# -- violations -------------------------------------------------------------------------------------------------------


def test_a_valid_value_has_no_violations() -> None:
    assert violations(of(limit={"type": "integer"}), {"limit": 5}) == ()
    assert Schema({}).is_valid("anything")


@pytest.mark.parametrize(
    ("value", "kind"),
    [(None, "null"), (True, "boolean"), (5.5, "number"), ("x", "string"), ([], "array"), ({}, "object")],
)
def test_a_type_violation_names_the_expected_and_the_actual_type(value: object, kind: str) -> None:
    wrong = only(of(limit={"type": "integer"}), {"limit": value})

    assert (wrong.place, wrong.keyword) == ("/limit", "type")
    assert wrong.message == f"`/limit` must be integer, not {kind}"


@pytest.mark.parametrize("value", [None, [], "path", 5])
def test_arguments_that_are_not_an_object_are_a_violation(value: object) -> None:
    assert only(of(), value).message.startswith("the arguments must be object, not ")


def test_a_missing_key_lists_known_keys_and_the_key_probably_meant() -> None:
    schema: Json = {"type": "object", "properties": {"file_path": {}, "mode": {}}, "required": ["file_path"]}

    wrong = only(schema, {"filePath": "."})

    assert wrong.place == ""
    assert wrong.message == "the required key `file_path` is missing (`filePath` was given)"
    assert (wrong.allowed, wrong.nearest) == (("file_path", "mode"), "file_path")
    assert only(schema, {}).nearest is None
    assert only(schema, {"mode": 1}).nearest is None


def test_an_unknown_key_lists_known_keys_and_the_nearest() -> None:
    wrong = only(of(files={}, limit={}), {"File": []})

    assert (wrong.place, wrong.allowed, wrong.nearest) == ("/File", ("files", "limit"), "files")
    assert wrong.message == "unknown key `File` (did you mean `files`?)"
    assert only(of(files={}), {"zebra": 1}).nearest is None


def test_an_unknown_key_is_found_with_unevaluated_properties() -> None:
    schema: Json = {"properties": {"name": {}}, "unevaluatedProperties": False}

    wrong = only(schema, {"nmae": 1})

    assert (wrong.place, wrong.keyword, wrong.nearest) == ("/nmae", "unevaluatedProperties", "name")


def test_a_value_outside_an_enum_lists_allowed_values_and_the_nearest() -> None:
    wrong = only(of(unit={"enum": ["celsius", "fahrenheit"]}), {"unit": "Celcius"})

    assert wrong.message == '`/unit` must be one of "celsius", "fahrenheit", not "Celcius"'
    assert (wrong.allowed, wrong.nearest) == (("celsius", "fahrenheit"), "celsius")


def test_a_long_enum_is_shortened_in_the_message_and_on_the_wire() -> None:
    wrong = only({"enum": list(range(100))}, "x" * 100_000)

    assert "and 80 more" in wrong.message
    assert len(wrong.message) < 300
    assert wrong.to_wire()["allowed"] == list(range(MAX_ALLOWED))
    assert wrong.to_wire()["allowed_count"] == 100


@pytest.mark.parametrize(
    ("schema", "value", "keyword"),
    [
        ({"minimum": 1}, 0, "minimum"),
        ({"maximum": 1}, 2, "maximum"),
        ({"exclusiveMinimum": 1}, 1, "exclusiveMinimum"),
        ({"exclusiveMaximum": 1}, 1, "exclusiveMaximum"),
        ({"multipleOf": 2}, 3, "multipleOf"),
        ({"minLength": 2}, "a", "minLength"),
        ({"maxLength": 2}, "abc", "maxLength"),
        ({"pattern": "^a"}, "b", "pattern"),
        ({"const": 3}, 4, "const"),
        ({"minItems": 1}, [], "minItems"),
        ({"maxItems": 1}, [1, 2], "maxItems"),
        ({"uniqueItems": True}, [1, 1], "uniqueItems"),
        ({"contains": {"const": 1}}, [2], "contains"),
        ({"minProperties": 1}, {}, "minProperties"),
        ({"maxProperties": 0}, {"a": 1}, "maxProperties"),
        ({"propertyNames": {"pattern": "^a"}}, {"b": 1}, "propertyNames"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "required"),
        ({"not": {"type": "string"}}, "x", "not"),
        ({"oneOf": [{"minimum": 1}, {"maximum": 5}]}, 3, "oneOf"),
        (False, 1, "falseSchema"),
        ({"if": {"const": 1}, "then": False}, 1, "falseSchema"),
    ],
    ids=str,
)
def test_every_kind_of_violation_has_its_path_and_keyword(schema: Any, value: object, keyword: str) -> None:
    wrong = only(of(**{"a/b~": schema}), {"a/b~": value})

    assert wrong.keyword == keyword
    assert wrong.place == "/a~1b~0"
    assert "`/a~1b~0`" in wrong.message
    assert wrong.to_wire()["place"] == wrong.place


def test_a_nested_violation_has_its_full_path() -> None:
    schema = of(edits={"type": "array", "items": of(line={"type": "integer"})})

    assert only(schema, {"edits": [{"line": 1}, {"line": "2"}]}).place == "/edits/1/line"


def test_only_the_first_violations_are_reported() -> None:
    assert len(violations({"items": {"type": "integer"}}, ["x"] * 1_000)) == MAX_VIOLATIONS


# -- alternatives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_a_violation_of_alternatives_with_different_types_names_all_types(keyword: str) -> None:
    wrong = only(of(limit={keyword: [{"type": "integer"}, {"type": "null"}]}), {"limit": "5"})

    assert (wrong.place, wrong.keyword) == ("/limit", keyword)
    assert wrong.message == "`/limit` must be integer or null, not string"


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_the_closest_alternative_is_explained(keyword: str) -> None:
    schema = of(target={keyword: [{"type": "string"}, of(line={"type": "integer"})]})

    wrong = only(schema, {"target": {"line": "3"}})

    assert wrong.message == "`/target/line` must be integer, not string"


def test_a_missing_key_of_an_alternative_is_explained() -> None:
    named: Json = {"type": "object", "properties": {"name": {}}, "required": ["name"]}
    schema: Json = {"anyOf": [{"type": "null"}, named]}

    assert only(schema, {"nmae": 1}).nearest == "name"


# -- accepted schemas -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "http://127.0.0.1:1/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"properties": {"a": {"$ref": "other.json#/a"}}},
        {"$id": "https://example.com/a", "properties": {"a": {"$ref": "b"}}},
        {"$schema": "https://example.com/dialect"},
        {"$dynamicRef": "https://example.com/schema.json#x"},
    ],
    ids=str,
)
def test_a_schema_with_remote_references_is_refused(schema: Json) -> None:
    with pytest.raises(InvalidTool, match="its schema is not usable"):
        Schema(schema)


def test_a_schema_in_an_existing_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text('{"type": "object"}')

    with pytest.raises(InvalidTool, match="remote references are refused"):
        Schema({"$ref": path.as_uri()})


def test_a_schema_on_a_reachable_server_is_not_requested() -> None:
    asked: list[str] = []

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(InvalidTool, match="remote references are refused"):
            Schema({"$ref": f"http://127.0.0.1:{server.server_port}/schema.json"})
        server.shutdown()

    assert asked == []


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nothing"},
        {"type": 5},
        {"required": "name"},
        {"properties": []},
        {"minLength": "2"},
        {"pattern": "("},
        {"enum": 3},
        {"$ref": "#/$defs/missing"},
        {"$schema": 5},
        {"description": "\ud800"},
        {"properties": {1: {}}},
    ],
    ids=str,
)
def test_an_invalid_schema_is_refused_with_a_reason_in_one_line(schema: Json) -> None:
    with pytest.raises(InvalidTool) as refused:
        Schema(schema)

    assert "\n" not in refused.value.message
    assert len(refused.value.message) < 400


def test_a_schema_nested_too_deeply_is_refused() -> None:
    schema: Json = {}
    for _ in range(5_000):
        schema = {"properties": {"a": schema}}

    with pytest.raises(InvalidTool):
        Schema(schema)


def test_a_schema_is_read_in_the_dialect_it_names() -> None:
    schema = {"properties": {"n": {"minimum": 1, "exclusiveMinimum": True}}}

    old = Schema({"$schema": "http://json-schema.org/draft-04/schema#", **schema})

    assert not old.is_valid({"n": 1})
    assert old.is_valid({"n": 2})
    with pytest.raises(InvalidTool):
        Schema(schema)


def test_the_default_dialect_is_2020_12() -> None:
    assert not Schema({"prefixItems": [{"type": "string"}]}).is_valid([1])


def test_a_recursive_schema_is_followed_as_deep_as_the_value() -> None:
    node = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "next": {"$ref": "#/$defs/node"}},
        "required": ["name"],
        "additionalProperties": False,
    }
    schema = {"$ref": "#/$defs/node", "$defs": {"node": node}}
    value: Json = {"nmae": "last"}
    for _ in range(20):
        value = {"name": "x", "next": value}

    unknown, missing = sorted(violations(schema, value), key=lambda violation: violation.keyword)

    assert unknown.place == "/next" * 20 + "/nmae"
    assert (unknown.nearest, missing.nearest) == ("name", "name")
    assert unknown.allowed == ("name", "next")


# -- unusual values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [{"a": "\ud800"}, {"\udfff": 1}, {1: 2}, {"a": {2, 3}, 4: 5}, {"a": object()}],
    # The `repr` of an object contains its address, and parallel test workers must agree on ids.
    ids=["surrogate value", "surrogate key", "integer key", "set", "object"],
)
def test_a_value_that_json_cannot_represent_is_a_violation(value: dict[Any, Any]) -> None:
    schema = Schema(of(a={"type": "string", "enum": ["x"]}))

    wrong = schema.violations(value)

    assert wrong
    assert all(violation.message.encode() for violation in wrong)
    assert not schema.is_valid(value)


def test_nan_and_infinity_are_not_numbers() -> None:
    schema = Schema(of(a={"type": "number"}))

    assert not schema.is_valid({"a": float("nan")})
    assert schema.violations({"a": float("inf")})


def test_integers_of_any_size_are_compared_exactly() -> None:
    schema = Schema(of(a={"type": "integer", "maximum": 2**64}))

    assert schema.is_valid({"a": 2**64})
    assert not schema.is_valid({"a": 2**64 + 1})
    assert schema.violations({"a": 10**400})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)
ANY_SCHEMA = of(
    a={"type": "integer", "enum": [1, 2]},
    b={"anyOf": [{"type": "string", "maxLength": 2}, of(a={"$ref": "#"}), {"type": "array", "items": {"minimum": 1}}]},
    c={"oneOf": [{"$ref": "#"}, {"const": None}]},
)


@given(JSON)
def test_there_are_violations_exactly_if_the_validator_rejects_the_value(value: object) -> None:
    schema = Schema(ANY_SCHEMA)

    assert bool(schema.violations(value)) != jsonschema_rs.is_valid(ANY_SCHEMA, value)
    assert schema.is_valid(value) == jsonschema_rs.is_valid(ANY_SCHEMA, value)


# -- helper functions -------------------------------------------------------------------------------------------------


def test_a_pointer_escapes_special_characters() -> None:
    assert pointer(["a/b", "~1", 0]) == "/a~1b/~01/0"
    assert pointer([]) == ""


def test_the_nearest_word_ignores_case_and_separators() -> None:
    assert nearest("filePath", ["file-path", "mode"]) == "file-path"
    assert nearest("zebra", ["file_path"]) is None
    assert nearest("x", []) is None
    assert nearest("", ["file_path"]) is None


class Recording(difflib.SequenceMatcher[str]):
    """Records which strings are compared: (word, candidate)."""

    letters: ClassVar[list[tuple[str, str]]] = []
    orders: ClassVar[list[tuple[str, str]]] = []

    def set_seq1(self, a: Sequence[str]) -> None:
        self.candidate = str(a)
        super().set_seq1(a)

    def set_seq2(self, b: Sequence[str]) -> None:
        self.word = str(b)
        super().set_seq2(b)

    def quick_ratio(self) -> float:
        self.letters.append((self.word, self.candidate))
        return super().quick_ratio()

    def ratio(self) -> float:
        self.orders.append((self.word, self.candidate))
        return super().ratio()


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> type[Recording]:
    monkeypatch.setattr("difflib.SequenceMatcher", Recording)
    monkeypatch.setattr(Recording, "letters", [])
    monkeypatch.setattr(Recording, "orders", [])
    return Recording


def test_long_strings_and_very_many_strings_are_not_compared(recording: type[Recording]) -> None:
    violations(of(path={"type": "string"}), {"x" * (MAX_COMPARED_CHARS + 1): 1})
    assert recording.letters == []
    many = {**{f"path{number}": 1 for number in range(2 * MAX_COMPARED)}, "x" * (MAX_COMPARED_CHARS + 1): 1}
    Schema({"properties": {"path": {}}, "required": ["path"]}).all_violations(many)
    assert len([candidate for word, candidate in recording.letters if word == "path"]) == MAX_COMPARED
    nearest("y" * 150, ["y" * (MAX_COMPARED_CHARS + 1), "y" * MAX_COMPARED_CHARS])
    assert recording.letters[-1] == ("y" * 150, "y" * MAX_COMPARED_CHARS)
    assert recording.letters[-2][0] == "path"


def anagrams(letters: str, count: int) -> list[str]:
    rng = random.Random(1)
    return ["".join(rng.sample(letters, len(letters))) for _ in range(count)]


def test_the_number_of_comparisons_for_one_value_is_bounded(recording: type[Recording]) -> None:
    words = anagrams(50 * "a" + 50 * "b", 220)
    schema = Schema(of(**{word: {} for word in words[:200]}))

    assert len(schema.all_violations(dict.fromkeys(words[200:], 1))) == MAX_VIOLATIONS

    assert 0 < sum(len(word) * len(name) * len(name) for word, name in recording.orders) <= 2 * MAX_COMPARED_UNITS
    assert 0 < sum(len(name) for _, name in recording.letters) <= MAX_COMPARED_UNITS / 10


def test_equal_explanations_are_examined_a_limited_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def note(word: str, *_: object) -> None:
        asked.append(word)

    monkeypatch.setattr("toolcrib.core.schema.nearest", note)
    (wrong,) = Schema({"allOf": [{"required": ["x"]}] * 1_000}).all_violations({})

    assert wrong.keyword == "required"
    assert len(asked) == MAX_EXPLANATIONS


def test_a_misspelt_name_is_found_among_many_similar_names() -> None:
    names = [f"list_item_{number}_in_repository" for number in range(1_500)]

    for meant in ("list_branches_in_repository", names[500]):
        misspelt = meant.replace("repository", "repositroy")
        assert nearest(misspelt, [*names, "list_branches_in_repository"]) == meant


@given(st.text("abAB_", max_size=8), st.lists(st.text("abAB_", max_size=8), max_size=8))
def test_the_nearest_word_equals_the_result_of_difflib(word: str, candidates: list[str]) -> None:
    def plain(name: str) -> str:
        return name.casefold().replace("_", "")

    found = nearest(word, candidates)

    closest = difflib.get_close_matches(plain(word), map(plain, candidates), n=1, cutoff=0.6)
    assert ([] if found is None else [plain(found)]) == closest
    assert found is None or found in candidates


def test_a_reference_resolves_to_its_subschema_or_none() -> None:
    document = {"$defs": {"a/b": {"type": "string"}}}

    assert at_reference(document, "#/$defs/a~1b") == {"type": "string"}
    assert at_reference(document, "#") == document
    assert at_reference(document, "#/$defs/c/d") is None
    assert at_reference(document, "other.json") is None
    assert at_reference(document, None) is None


def test_a_reference_is_resolved_once_for_a_deeply_nested_value(monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[str] = []

    def note(text: str) -> str:
        followed.append(text)
        return unquote(text)

    node = {"type": "object", "properties": {"n": {"$ref": "#/$defs/node"}}, "required": ["a", "b"]}
    monkeypatch.setattr("toolcrib.core.subschemas.unquote", note)
    schema = Schema({**of(n={"$ref": "#/$defs/node"}), "$defs": {"node": node}})
    followed.clear()
    value: Json = {}
    for _ in range(50):
        value = {"a": 1, "b": 2, "n": value}

    (first, *_) = schema.all_violations({"n": value})
    assert schema.cost.of({"n": value}, MAX_JUDGED) < MAX_JUDGED

    assert first.allowed == ("n",)
    assert followed == ["#/$defs/node"]


def chain_of_choices(links: int) -> Json:
    """Each link refers to the next one twice, so there are two to the power of `links` paths to the last one."""
    link = {f"l{n}": {"anyOf": [{"$ref": f"#/$defs/l{n + 1}"}, {"$ref": f"#/$defs/l{n + 1}"}]} for n in range(links)}
    return {"type": "object", "$ref": "#/$defs/l0", "$defs": {**link, f"l{links}": {"required": ["y"]}}}


def test_an_exponential_chain_of_alternatives_is_refused() -> None:
    assert Schema(chain_of_choices(6)).violations({"x": 1})
    with pytest.raises(InvalidTool, match=f"more than {MAX_BRANCHES} subschemas"):
        Schema(chain_of_choices(64))


@pytest.mark.parametrize("key", ["$anchor", "$dynamicAnchor"])
def test_an_exponential_chain_through_anchors_is_refused(key: str) -> None:
    refs = {"$anchor": "$ref", "$dynamicAnchor": "$dynamicRef"}
    link = {f"l{n}": {key: f"a{n}", "anyOf": [{refs[key]: f"#a{n + 1}"}, {refs[key]: f"#a{n + 1}"}]} for n in range(40)}
    with pytest.raises(InvalidTool, match="subschemas"):
        Schema({"anyOf": [{refs[key]: "#a0"}], "$defs": {**link, "l40": {key: "a40"}}})


def bundled(real: Json, start: str) -> Json:
    """A schema with a part that has its own `$id`. Decoys at the root hide the definitions that its references mean."""
    part = {"$id": "http://b/", "$defs": real, "$ref": start}
    return {"type": "object", "$id": "http://a/", "$defs": {name: {} for name in real}, "allOf": [part]}


@pytest.mark.parametrize(
    "document",
    [
        bundled(chain_of_choices(32)["$defs"], "#/$defs/l0"),
        {**chain_of_choices(32), "allOf": [{"$id": "http://b/"}]},
        {**chain_of_choices(32), "$schema": "http://json-schema.org/draft-04/schema#", "allOf": [{"id": "http://b/"}]},
    ],
    ids=["decoys at the root", "an `$id` anywhere", "an `id` of draft 4"],
)
def test_an_exponential_chain_in_a_part_with_its_own_id_is_refused(document: Json) -> None:
    with pytest.raises(InvalidTool, match="more than 8 references that involve an `\\$id`"):
        Schema(document)


def test_parts_with_their_own_ids_are_accepted_with_few_references() -> None:
    schema = Schema(bundled({"name": {"type": "object", "required": ["name"]}}, "#/$defs/name"))

    assert schema.matches({"name": "x"})
    assert not schema.matches({})
    assert schema.quick_violations({}) is None


DRAFT_2019: Json = {"$schema": "https://json-schema.org/draft/2019-09/schema"}


@pytest.mark.parametrize(
    "document",
    [
        {**DRAFT_2019, "anyOf": [{"$recursiveRef": "#/$defs/harmless"}], "$defs": {"harmless": {}}},
        {"anyOf": [{"$dynamicRef": "#/$defs/l0"}], "$defs": chain_of_choices(64)["$defs"]},
    ],
    ids=["$recursiveRef", "$dynamicRef"],
)
def test_an_exponential_chain_through_other_reference_keywords_is_refused(document: Json) -> None:
    with pytest.raises(InvalidTool, match="subschemas"):
        Schema(document)


def test_a_schema_that_refers_directly_to_itself_is_refused() -> None:
    with pytest.raises(InvalidTool):
        Schema({"$ref": "#"})
    tree = Schema({"type": "object", "properties": {"left": {"$ref": "#"}}, "additionalProperties": False})
    assert tree.is_valid({"left": {"left": {}}})
    assert not tree.is_valid({"left": {"right": {}}})
