"""What of a tool's arguments may be written down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from toolcrib.audit.redaction import MAX_CHARS, MAX_MEMBERS, MAX_STEPS, MAX_TEXT, REDACTED, Redaction
from toolcrib.audit.store import AuditStore
from toolcrib.core.events import OK, OperationPerformed

OPEN: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}}


def kept(given: dict[str, Any], schema: Mapping[str, Any] | None = None, *keys: str) -> dict[str, Any]:
    return Redaction(keys).arguments(given, schema)


# -- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        *(
            "password",
            "Password",
            "db_password",
            "dbPassword",
            "DB-PASSWORD",
            "pass",
            "dbPass",
            "user_pwd",
            "p.w.d.token",
        ),
        *("token", "accessToken", "x-api-key", "API_KEY", "apikey", "Authorization", "auth", "proxy-auth", "oauth"),
        *(
            "client_secret",
            "privateKey",
            "Cookie",
            "Set-Cookie",
            "credentials",
            "pin",
            "userPIN",
            "otp",
            "sessionId",
            "JWT",
        ),
    ],
)
def test_what_stands_under_a_key_of_secrets_is_redacted_whatever_it_is(key: str) -> None:
    for value in ("hunter2", 4711, ["hunter2"], {"deep": "hunter2"}, None):
        assert kept({key: value, "path": "a"}) == {key: REDACTED, "path": "a"}
        assert kept({"list": [{"deep": {key: value}}]}) == {"list": [{"deep": {key: REDACTED}}]}


@pytest.mark.parametrize(
    "key", ["path", "className", "hotpath", "spin", "standard", "compare", "description", "repo", "sidebar"]
)
def test_other_keys_are_left_alone(key: str) -> None:
    assert kept({key: "plain"}) == {key: "plain"}


def test_more_keys_can_be_named_and_case_and_separators_do_not_matter() -> None:
    given = {"CustomerNo": 1, "the-customer_no": 2, "customer": 3}
    assert kept(given) == given
    assert kept(given, None, "customer no") == {"CustomerNo": REDACTED, "the-customer_no": REDACTED, "customer": 3}


def test_a_value_whose_name_stands_beside_it_is_redacted() -> None:
    assert kept({"env": [{"name": "API_TOKEN", "value": "x1"}, {"name": "HOME", "value": "/root"}]}) == {
        "env": [{"name": "API_TOKEN", "value": REDACTED}, {"name": "HOME", "value": "/root"}]
    }
    assert kept({"args": ["--user", "ada", "--password", "hunter2", "-v"]}) == {
        "args": ["--user", "ada", "--password", REDACTED, "-v"]
    }


# -- the schema -------------------------------------------------------------------------------------------------------

PASSWORD: dict[str, Any] = {"type": "string", "format": "password"}
WRITE_ONLY: dict[str, Any] = {"type": "string", "writeOnly": True}
MARKED: list[dict[str, Any]] = [
    PASSWORD,
    WRITE_ONLY,
    {"$ref": "#/$defs/mark"},
    {"anyOf": [{"type": "null"}, WRITE_ONLY]},
]

CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"properties": {"a": "MARK"}}, {"a": "hunter2"}),
    ({"additionalProperties": "MARK"}, {"a": "hunter2"}),
    ({"unevaluatedProperties": "MARK"}, {"a": "hunter2"}),
    ({"patternProperties": {"^a$": "MARK"}}, {"a": "hunter2"}),
    ({"patternProperties": {"^(a+)+$": "MARK"}}, {"a": "hunter2"}),
    ({"patternProperties": {"(?<n>x": {}}, "additionalProperties": "MARK"}, {"a": "hunter2"}),
    ({"properties": {"a": {"items": "MARK"}}}, {"a": ["hunter2"]}),
    ({"properties": {"a": {"items": [{}, "MARK"]}}}, {"a": ["b", "hunter2"]}),
    ({"properties": {"a": {"items": [{}], "additionalItems": "MARK"}}}, {"a": ["b", "hunter2"]}),
    ({"properties": {"a": {"prefixItems": [{}], "items": "MARK"}}}, {"a": ["b", "hunter2"]}),
    ({"properties": {"a": {"contains": "MARK"}}}, {"a": ["b", "hunter2"]}),
    ({"allOf": [{"properties": {"a": {}}}, {"properties": {"a": "MARK"}}]}, {"a": "hunter2"}),
    ({"oneOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"a": "MARK"}}]}, {"a": "hunter2"}),
    ({"if": {}, "then": {"properties": {"a": "MARK"}}}, {"a": "hunter2"}),
    ({"dependentSchemas": {"b": {"properties": {"a": "MARK"}}}}, {"a": "hunter2", "b": 1}),
    ({"properties": {"a": {"$ref": "#/$defs/tree"}}}, {"a": {"c": {"c": {"s": "hunter2"}}}}),
    ({"propertyNames": "MARK"}, {"hunter2": 1}),
    # Not the object that the schema has in mind: a text of JSON, an object where a text is expected.
    ({"properties": {"a": {"type": "object", "properties": {"b": "MARK"}}}}, {"a": '{"b": "hunter2"}'}),
    ({"properties": {"a": "MARK"}}, {"a": {"b": "hunter2"}}),
    # A key that the schema does not know, where it knows of secrets: misspelled, perhaps.
    ({"properties": {"a": "MARK"}}, {"aa": "hunter2"}),
]


@pytest.mark.parametrize("mark", MARKED)
@pytest.mark.parametrize(("schema", "value"), CASES)
def test_what_the_schema_marks_is_redacted_wherever_it_stands(
    schema: dict[str, Any], value: dict[str, Any], mark: dict[str, Any]
) -> None:
    marked = json.loads(json.dumps(schema).replace('"MARK"', json.dumps(mark)))
    tree = {"properties": {"s": mark, "c": {"$ref": "#/$defs/tree"}}}
    document = {"type": "object", "$defs": {"mark": PASSWORD, "tree": tree}, **marked}
    assert "hunter2" not in json.dumps(kept(value, document))


@pytest.mark.parametrize(
    "stray",
    [
        {"$ref": "#anchor"},
        {"$ref": "https://example.com/s"},
        {"$dynamicRef": "#x"},
        {"$id": "https://x/y", "type": "string"},
    ],
)
def test_a_reference_that_cannot_be_followed_may_be_a_mark(stray: dict[str, Any]) -> None:
    schema = {"properties": {"a": stray, "b": {"type": "string"}}}
    assert kept({"a": "x", "b": "y"}, schema) == {"a": REDACTED, "b": "y"}


def test_what_stands_beside_a_mark_is_kept() -> None:
    schema = {
        "properties": {
            "user": {"type": "string"},
            "phrase": PASSWORD,
            "list": {"type": "array", "items": {"properties": {"n": {"type": "integer"}}}},
        }
    }
    given = {"user": "ada", "phrase": "hunter2", "list": [{"n": 1}]}
    assert kept(given, schema) == {"user": "ada", "phrase": REDACTED, "list": [{"n": 1}]}
    assert kept({"a": "x"}, {"properties": {"a": {"writeOnly": False, "format": "uri"}}}) == {"a": "x"}


def test_a_schema_that_is_too_large_to_be_looked_through_marks_everything() -> None:
    schema = {"properties": {"a": {"type": "string"}}, "anyOf": [{"const": n} for n in range(MAX_STEPS)]}
    assert "plain" not in json.dumps(kept({"a": "plain"}, schema))


def test_a_schema_that_takes_too_long_for_many_values_marks_those_that_are_left() -> None:
    choices = [{"writeOnly": True}, *({"const": n} for n in range(MAX_STEPS // 8))]
    schema = {"properties": {"a": {"items": {"anyOf": choices}}}}
    assert kept({"a": ["plain"] * 20}, schema) == {"a": [REDACTED] * 20}


# -- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "Bearer abcdef123456",
        "sk-proj-abcdefghijklmnop1234",
        "mine begins with sk-ant-" + "api03-" + "x1" * 12,
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "ghp_abcdefghijklmnopqrst",
        "xoxb-1234567890-abc",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "postgres://ada:hunter2@db/x",
        "https://ghs0123456789abcdefghij@github.com/a/b",
        "curl -u ada:hunter2 http://x",
        "curl -H 'Authorization: Basic YWRhOmh1bnRlcjI=' http://x",
        "export DB_PASSWORD=hunter2",
        "mysql --password hunter2",
        '{"user": "ada", "api_key": "hunter2"}',
        '{\\"token\\": \\"hunter2\\"}',
        "password: hunter2",
        "the password is hunter2",
        "https://x/?access_token=hunter2",
    ],
)
def test_a_text_that_looks_like_a_secret_is_redacted_whole(text: str) -> None:
    for value in (text, f"before {text} after", f"{'x ' * (MAX_TEXT // 2 - 10)}{text}"):
        assert kept({"a": value}) == {"a": REDACTED}
        assert kept({"a": [{"b": value}]}) == {"a": [{"b": REDACTED}]}
        assert [*kept({value: 1})] == [REDACTED]
        assert Redaction().text(value) == REDACTED


@pytest.mark.parametrize(
    "text",
    [
        "show the last commits",
        "da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "https://example.com:8080/a?b=c#d",
        "git@github.com:a/b.git",
        "src/toolcrib/surfaces/mcp_gateway/gateway_server.py",
        "count the tokens of this text",
        "path: /home/ada",
        "SELECT name FROM users WHERE id = 3",
        "2026-08-01T09:30:00Z",
        "registry:5000/image@sha256",
    ],
)
def test_other_texts_are_kept(text: str) -> None:
    assert kept({"a": text}) == {"a": text}


def test_long_values_are_cut() -> None:
    assert kept({"a": "é" * 10_000}) == {"a": "é" * MAX_TEXT + "… (10,000 characters)"}
    many = kept({"a": list(range(1_000))})["a"]
    assert (many[:MAX_MEMBERS], many[MAX_MEMBERS:]) == ([*range(MAX_MEMBERS)], ["… (950 more)"])
    wide = kept({str(n): n for n in range(1_000)})
    assert (len(wide), wide["…"]) == (MAX_MEMBERS + 1, "950 more")
    deep: Any = "bottom"
    for _ in range(2_000):
        deep = [deep]
    assert "bottom" not in json.dumps(kept({"a": deep}))
    large = [[["x" * 400] * 50] * 50] * 50
    assert len(json.dumps(kept({"a": large}))) < 3 * MAX_CHARS


@given(
    st.dictionaries(
        st.text(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner),
        ),
    )
)
def test_whatever_is_given_a_json_value_comes_out(given: dict[str, Any]) -> None:
    out = kept(given)
    assert json.loads(json.dumps(out, allow_nan=False)) == out
    assert kept({"a": float("nan"), "b": 1 << 70}) == {"a": REDACTED, "b": REDACTED}


# -- on the disk ------------------------------------------------------------------------------------------------------

CANARY = "canary7531"


@dataclass(frozen=True, slots=True)
class Part:
    """A schema and a value for it, in which each `CANARY` is marked."""

    schema: dict[str, Any]
    value: Any


MARKS = st.sampled_from([{"format": "password"}, {"writeOnly": True}, {"type": "string", "format": "password"}])
NAMES = st.sampled_from(["a", "b", "c", "d-e", "$x"])
SECRETS = st.sampled_from([CANARY, [CANARY], {"k": CANARY}, {CANARY: 1}, [[{"k": [CANARY]}]]])

LEAVES = st.one_of(
    st.builds(Part, MARKS, SECRETS),
    st.builds(Part, st.just({"type": "string"}), st.text(max_size=5)),
    st.builds(Part, st.just({}), st.integers()),
)


def wrapped(inner: st.SearchStrategy[Part]) -> st.SearchStrategy[Part]:
    def in_properties(parts: dict[str, Part]) -> Part:
        return Part(
            {"type": "object", "properties": {name: part.schema for name, part in parts.items()}},
            {name: part.value for name, part in parts.items()},
        )

    def under_any_key(keyword: str, name: str, part: Part) -> Part:
        below = {"^[a-z$]": part.schema} if keyword == "patternProperties" else part.schema
        return Part({keyword: below}, {name: part.value})

    def in_place(keyword: str, part: Part) -> Part:
        below = part.schema if keyword in {"then", "else"} else [{"type": "null"}, part.schema]
        return Part({keyword: below}, part.value)

    def as_item(part: Part) -> Part:
        return Part({"items": part.schema}, [part.value])

    def as_second_item(part: Part) -> Part:
        return Part({"prefixItems": [{}, part.schema]}, [1, part.value])

    def by_reference(part: Part) -> Part:
        return Part({"REF": part.schema}, part.value)

    return st.one_of(
        st.builds(in_properties, st.dictionaries(NAMES, inner, max_size=3)),
        st.builds(
            under_any_key,
            st.sampled_from(["additionalProperties", "patternProperties", "unevaluatedProperties"]),
            NAMES,
            inner,
        ),
        st.builds(in_place, st.sampled_from(["anyOf", "oneOf", "allOf", "then", "else"]), inner),
        st.builds(as_item, inner),
        st.builds(as_second_item, inner),
        st.builds(by_reference, inner),
    )


def with_references(schema: Any, definitions: dict[str, Any]) -> Any:
    """`schema` with what stands under `REF` moved to `definitions`."""
    if isinstance(schema, list):
        return [with_references(part, definitions) for part in schema]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(schema, dict):
        return schema
    done: dict[str, Any] = {key: with_references(part, definitions) for key, part in schema.items()}  # pyright: ignore[reportUnknownVariableType]
    if "REF" in done:
        name = f"d/{len(definitions)}"
        definitions[name] = done.pop("REF")
        done["$ref"] = f"#/$defs/{name.replace('/', '~1')}"
    return done


@settings(max_examples=examples(60))
@given(
    parts=st.lists(
        st.dictionaries(NAMES, st.recursive(LEAVES, wrapped, max_leaves=8), max_size=4), min_size=1, max_size=5
    )
)
def test_what_is_marked_never_reaches_the_disk(parts: list[dict[str, Part]]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "audit.sqlite"
        with AuditStore(path, keeps_arguments=True) as store:
            for each in parts:
                definitions: dict[str, Any] = {}
                properties = {name: with_references(part.schema, definitions) for name, part in each.items()}
                schema = {"type": "object", "properties": properties, "$defs": definitions}
                arguments: dict[str, Any] = {name: part.value for name, part in each.items()}
                arguments["password"] = f"Bearer {CANARY}"
                store.record(
                    OperationPerformed(
                        0.0, "t", "ada", "call_tool", OK, 0.1, 1, arguments=arguments, input_schema=schema
                    )
                )
        written = b"".join(file.read_bytes() for file in Path(folder).iterdir())
        assert written.count(b'"password": "[redacted]"') == len(parts)
        assert CANARY.encode() not in written
