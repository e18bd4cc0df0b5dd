"""Tests which arguments of a tool are redacted in the audit."""

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


def redacted_arguments(given: dict[str, Any], schema: Mapping[str, Any] | None = None, *keys: str) -> dict[str, Any]:
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
def test_any_value_under_a_secret_key_is_redacted(key: str) -> None:
    for value in ("hunter2", 4711, ["hunter2"], {"deep": "hunter2"}, None):
        assert redacted_arguments({key: value, "path": "a"}) == {key: REDACTED, "path": "a"}
        assert redacted_arguments({"list": [{"deep": {key: value}}]}) == {"list": [{"deep": {key: REDACTED}}]}


@pytest.mark.parametrize(
    "key", ["path", "className", "hotpath", "spin", "standard", "compare", "description", "repo", "sidebar"]
)
def test_values_under_other_keys_are_not_redacted(key: str) -> None:
    assert redacted_arguments({key: "plain"}) == {key: "plain"}


def test_configured_keys_match_without_case_and_separators() -> None:
    given = {"CustomerNo": 1, "the-customer_no": 2, "customer": 3}
    assert redacted_arguments(given) == given
    assert redacted_arguments(given, None, "customer no") == {
        "CustomerNo": REDACTED,
        "the-customer_no": REDACTED,
        "customer": 3,
    }


def test_a_value_next_to_its_secret_name_is_redacted() -> None:
    assert redacted_arguments({"env": [{"name": "API_TOKEN", "value": "x1"}, {"name": "HOME", "value": "/root"}]}) == {
        "env": [{"name": "API_TOKEN", "value": REDACTED}, {"name": "HOME", "value": "/root"}]
    }
    assert redacted_arguments({"args": ["--user", "ada", "--password", "hunter2", "-v"]}) == {
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
    # Values that do not match the schema: a JSON string for an object, and an object for a string.
    ({"properties": {"a": {"type": "object", "properties": {"b": "MARK"}}}}, {"a": '{"b": "hunter2"}'}),
    ({"properties": {"a": "MARK"}}, {"a": {"b": "hunter2"}}),
    # An unknown key in a schema with secrets could be a misspelled secret.
    ({"properties": {"a": "MARK"}}, {"aa": "hunter2"}),
]


@pytest.mark.parametrize("mark", MARKED)
@pytest.mark.parametrize(("schema", "value"), CASES)
def test_values_that_the_schema_marks_are_redacted_at_any_position(
    schema: dict[str, Any], value: dict[str, Any], mark: dict[str, Any]
) -> None:
    marked = json.loads(json.dumps(schema).replace('"MARK"', json.dumps(mark)))
    tree = {"properties": {"s": mark, "c": {"$ref": "#/$defs/tree"}}}
    document = {"type": "object", "$defs": {"mark": PASSWORD, "tree": tree}, **marked}
    assert "hunter2" not in json.dumps(redacted_arguments(value, document))


@pytest.mark.parametrize(
    "stray",
    [
        {"$ref": "#anchor"},
        {"$ref": "https://example.com/s"},
        {"$dynamicRef": "#x"},
        {"$id": "https://x/y", "type": "string"},
    ],
)
def test_a_value_with_an_unresolvable_schema_reference_is_redacted(stray: dict[str, Any]) -> None:
    schema = {"properties": {"a": stray, "b": {"type": "string"}}}
    assert redacted_arguments({"a": "x", "b": "y"}, schema) == {"a": REDACTED, "b": "y"}


def test_values_next_to_a_marked_value_are_not_redacted() -> None:
    schema = {
        "properties": {
            "user": {"type": "string"},
            "phrase": PASSWORD,
            "list": {"type": "array", "items": {"properties": {"n": {"type": "integer"}}}},
        }
    }
    given = {"user": "ada", "phrase": "hunter2", "list": [{"n": 1}]}
    assert redacted_arguments(given, schema) == {"user": "ada", "phrase": REDACTED, "list": [{"n": 1}]}
    assert redacted_arguments({"a": "x"}, {"properties": {"a": {"writeOnly": False, "format": "uri"}}}) == {"a": "x"}


def test_a_schema_too_large_to_check_redacts_everything() -> None:
    schema = {"properties": {"a": {"type": "string"}}, "anyOf": [{"const": n} for n in range(MAX_STEPS)]}
    assert "plain" not in json.dumps(redacted_arguments({"a": "plain"}, schema))


def test_values_beyond_the_step_limit_are_redacted() -> None:
    choices = [{"writeOnly": True}, *({"const": n} for n in range(MAX_STEPS // 8))]
    schema = {"properties": {"a": {"items": {"anyOf": choices}}}}
    assert redacted_arguments({"a": ["plain"] * 20}, schema) == {"a": [REDACTED] * 20}


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
def test_a_string_that_looks_like_a_secret_is_redacted_completely(text: str) -> None:
    for value in (text, f"before {text} after", f"{'x ' * (MAX_TEXT // 2 - 10)}{text}"):
        assert redacted_arguments({"a": value}) == {"a": REDACTED}
        assert redacted_arguments({"a": [{"b": value}]}) == {"a": [{"b": REDACTED}]}
        assert [*redacted_arguments({value: 1})] == [REDACTED]
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
def test_ordinary_strings_are_not_redacted(text: str) -> None:
    assert redacted_arguments({"a": text}) == {"a": text}


def test_long_values_are_truncated() -> None:
    assert redacted_arguments({"a": "é" * 10_000}) == {"a": "é" * MAX_TEXT + "… (10,000 characters)"}
    many = redacted_arguments({"a": list(range(1_000))})["a"]
    assert (many[:MAX_MEMBERS], many[MAX_MEMBERS:]) == ([*range(MAX_MEMBERS)], ["… (950 more)"])
    wide = redacted_arguments({str(n): n for n in range(1_000)})
    assert (len(wide), wide["…"]) == (MAX_MEMBERS + 1, "950 more")
    deep: Any = "bottom"
    for _ in range(2_000):
        deep = [deep]
    assert "bottom" not in json.dumps(redacted_arguments({"a": deep}))
    large = [[["x" * 400] * 50] * 50] * 50
    assert len(json.dumps(redacted_arguments({"a": large}))) < 3 * MAX_CHARS


@given(
    st.dictionaries(
        st.text(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner),
        ),
    )
)
def test_redaction_always_returns_a_json_value(given: dict[str, Any]) -> None:
    out = redacted_arguments(given)
    assert json.loads(json.dumps(out, allow_nan=False)) == out
    assert redacted_arguments({"a": float("nan"), "b": 1 << 70}) == {"a": REDACTED, "b": REDACTED}


# -- on disk ----------------------------------------------------------------------------------------------------------

CANARY = "canary7531"


@dataclass(frozen=True, slots=True)
class Part:
    """A schema and a value for it. The schema marks each `CANARY` in the value."""

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
    """Returns `schema` with each schema under `REF` moved to `definitions`."""
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
def test_marked_values_are_never_written_to_disk(parts: list[dict[str, Part]]) -> None:
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
