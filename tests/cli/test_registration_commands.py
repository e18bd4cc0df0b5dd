"""`toolcrib register`, `unregister`, `export` and `import`: their effects and what they refuse."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cli.running import Ended, toolcrib
from tests.examples import examples
from tests.servers.launching import faulty_entry, write_config

from toolcrib.cli.opened_catalog import default_registrations, registrations_of
from toolcrib.config.registration_store import Registration, RegistrationStore
from toolcrib.config.registrations import KEYS, document, read_document

DISK = ("register", "command", "ops.disk_free", "--description", "Free room on a disk.")


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration that declares a tool, with its own store of registrations."""
    monkeypatch.setattr("platformdirs.user_state_path", tmp_path.joinpath)
    monkeypatch.chdir(tmp_path)
    mine = {"declared": {"mine": {"tools": {"greet": {"description": "Greet.", "command": ["echo", "hello"]}}}}}
    return write_config(tmp_path / "mcp.json", toolcrib=mine, bench=faulty_entry())


def exported() -> dict[str, Any]:
    return json.loads(toolcrib("export").out)["toolcrib"]


def registered() -> list[str]:
    return [row.name for row in registrations_of(Path("mcp.json")).all()]


def document_of(**members: Any) -> str:
    return json.dumps({"toolcrib": members, "version": 1})


def written(text: str) -> Path:
    path = Path("registered.json")
    path.write_text(text, "utf-8")
    return path


def refused(ended: Ended, *words: str) -> None:
    assert ended.code == 2
    assert ended.out == ""
    for word in words:
        assert word in ended.err


# -- add --------------------------------------------------------------------------------------------------------------


def test_a_registered_command_can_be_found_and_called_until_it_is_unregistered() -> None:
    added = toolcrib(*DISK, "--", "echo", "{path}", "on", "{disk}")
    assert (added.code, added.out) == (0, "added: `ops.disk_free`\n")
    assert "Running gateways that use mcp.json apply the change" in added.err
    assert "ops.disk_free" in toolcrib("search", "free room").out
    assert toolcrib("call", "ops.disk_free", '{"path": "/", "disk": "sda"}').out.strip() == "/ on sda"
    assert "`path` is missing" in toolcrib("call", "ops.disk_free", '{"disk": "sda"}').err

    assert toolcrib("unregister", "ops.disk_free").out == "removed: `ops.disk_free`\n"
    assert "TOOL_NOT_FOUND" in toolcrib("call", "ops.disk_free", "{}").err
    assert [*exported()["declared"]] == []


def test_a_given_schema_replaces_the_generated_schema() -> None:
    schema = {"type": "object", "properties": {"path": {"type": "string", "default": "/home"}}}
    Path("schema.json").write_text(json.dumps(schema))
    toolcrib(*DISK, "--schema", "schema.json", "--", "echo", "{path}")
    assert toolcrib("call", "ops.disk_free").out.strip() == "/home"


def test_an_http_tool_is_registered_with_method_headers_and_body() -> None:
    toolcrib(
        "register", "http", "weather.tell", "https://weather.example.com/{city}?unit={unit}",
        "--description", "Weather.", "--method", "POST", "--header", "X-For: {whom}", "--body", "{text}",
        "--allow-private",
    )  # fmt: skip
    tool = exported()["declared"]["weather"]["tools"]["tell"]
    assert tool["http"] == {
        "method": "POST",
        "url": "https://weather.example.com/{city}?unit={unit}",
        "headers": {"X-For": "{whom}"},
        "body": "{text}",
        "allow_private": True,
    }
    assert tool["input_schema"]["required"] == ["city", "unit", "whom", "text"]


@pytest.mark.parametrize(
    ("tool_id", "words", "told"),
    [
        ("mine.greet", ["ls"], "`mine.greet`: the configuration"),
        ("bench.more", ["ls"], "the name `bench` is already used"),
        ("disk", ["ls"], "Use SOURCE.NAME"),
        ("ops.x", ["sh", "-c", "echo {text}"], "`sh` would run the argument"),
        ("ops.x", ["{program}"], "without placeholders"),
        ("Ops Tools.x", ["ls"], "is not a valid source name"),
    ],
)
def test_an_unusable_registration_is_refused_and_nothing_is_written(tool_id: str, words: list[str], told: str) -> None:
    refused(toolcrib("register", "command", tool_id, "--description", "x", "--", *words), told)
    assert not default_registrations().exists() or registered() == []


def test_a_registered_id_is_refused_with_the_command_that_removes_it() -> None:
    toolcrib(*DISK, "--", "df")
    refused(toolcrib(*DISK, "--", "du"), "`ops.disk_free` is already registered", "toolcrib unregister ops.disk_free")
    assert exported()["declared"]["ops"]["tools"]["disk_free"]["command"] == ["df"]


def test_a_tool_can_be_registered_in_a_source_of_the_configuration() -> None:
    toolcrib("register", "command", "mine.part", "--description", "Say goodbye.", "--", "echo", "goodbye")
    assert toolcrib("call", "mine.part").out.strip() == "goodbye"
    assert toolcrib("call", "mine.greet").out.strip() == "hello"


def test_each_configuration_has_its_own_registrations(tmp_path: Path) -> None:
    other = write_config(tmp_path / "other.json")
    toolcrib(*DISK, "--", "df")
    toolcrib(*DISK, "-c", other, "--json", "--", "du")
    assert exported()["declared"]["ops"]["tools"]["disk_free"]["command"] == ["df"]
    assert json.loads(toolcrib("export", other).out)["toolcrib"]["declared"]["ops"]["tools"]["disk_free"][
        "command"
    ] == ["du"]


def test_the_instructions_mention_a_registered_source() -> None:
    assert "ops" not in toolcrib("instructions", "--full").out
    toolcrib(*DISK, "--", "df")
    assert "ops" in toolcrib("instructions", "--full").out


# -- remove -----------------------------------------------------------------------------------------------------------

ALL_KINDS = {
    "declared": {"ops": {"title": "Operations", "tools": {"a": {"description": "A.", "command": ["true"]}}}},
    "categories": {"Coding": {"summary": "Code", "categories": {"A/B": {"tools": ["ops.*"]}}}},
    "tools": {"ops.*": {"tags": ["x"]}},
    "bundles": {"outer": {"includes": ["inner"]}, "inner": {"required": ["ops.a"]}},
    "capabilities": {"shell": {"program": "sh"}},
}


def test_everything_can_be_unregistered_and_dependencies_only_with_their_dependents() -> None:
    toolcrib("import", written(document_of(**ALL_KINDS)))
    refused(toolcrib("unregister", "ops.a", "--bundle", "inner"), "nothing was removed", "`outer`")
    assert len(registered()) == 8

    removed = toolcrib(
        "unregister", "ops.a", "--bundle", "inner", "--bundle", "outer", "--category", "Coding", "--category",
        "Coding/A~1B", "--override", "ops.*", "--capability", "shell", "--json",
    ).json  # fmt: skip
    assert {"kind": "source", "name": "ops"} in removed["removed"]
    assert len(removed["removed"]) == 8
    assert registered() == []


def test_unregistering_a_missing_item_removes_nothing() -> None:
    toolcrib(*DISK, "--", "df")
    wrong = toolcrib("unregister", "ops.disk_free", "--bundle", "nope", "--json")
    assert (wrong.code, wrong.json["error"]["code"]) == (1, "NOT_FOUND")
    assert "the bundle `nope` is not registered" in wrong.json["error"]["message"]
    assert registered() == ["ops.disk_free"]


# -- export and import ------------------------------------------------------------------------------------------------


def test_an_export_can_be_imported_or_pasted_into_a_configuration(tmp_path: Path) -> None:
    toolcrib("import", written(document_of(**ALL_KINDS)))
    assert exported() == ALL_KINDS
    assert toolcrib("export", "-o", "out.json").out == ""

    other = write_config(tmp_path / "other.json")
    assert toolcrib("import", "out.json", other).code == 0
    assert toolcrib("export", other).out == toolcrib("export").out == Path("out.json").read_text()

    pasted = write_config(tmp_path / "pasted.json", toolcrib=json.loads(Path("out.json").read_text())["toolcrib"])
    shown = [json.loads(toolcrib("tree", "--json", path).out) for path in (other, pasted)]
    assert shown[0] == shown[1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "registered.json: line 1"),
        ('{"toolcrib": {}, "version": 2}', "version: must be 1; it was written by a different version of Toolcrib"),
        ('{"toolcrib": {}, "version": true}', "version: must be 1"),
        ('{"toolcrib": {}}', "version: must be 1"),
        ('{"version": 1}', "toolcrib: must be an object"),
        ('{"toolcrib": {}, "version": 1, "more": 1}', "unknown key `more`"),
        (document_of(policy={}), "toolcrib: unknown key `policy`"),
        (document_of(declared={"ops": {"tools": {"a": {"command": ["ls"]}}}}), "toolcrib.declared.ops.tools.a.desc"),
        (document_of(tools={"a.b": {"tagz": []}}), "toolcrib.tools.a.b: unknown key `tagz`"),
        (document_of(categories={"A": {"also_under": [["A"]]}}), "cannot be below itself"),
        (document_of(categories={"A": {"categories": 1}}), "toolcrib.categories.A.categories: must be an object"),
        (document_of(bundles={"b": {"required": 1}}), "toolcrib.bundles.b.required"),
        (document_of(bundles={"b": {"includes": ["nope"]}}), "the bundle `b`"),
        (document_of(capabilities={"c": {}}), "toolcrib.capabilities.c: needs exactly one of"),
        ('{"toolcrib": {"bundles": {"a": {}, "a": {}}}, "version": 1}', "bundles.a: duplicate key"),
    ],
)
def test_an_invalid_file_is_refused_with_the_path_of_the_error(text: str, told: str) -> None:
    refused(toolcrib("import", written(text)), told)
    assert not default_registrations().exists() or registered() == []


def test_conflicting_items_are_all_listed_and_refused_without_replace() -> None:
    toolcrib("import", written(document_of(**ALL_KINDS)))
    before = exported()
    newer = {"bundles": {"inner": {"required": ["ops.b"]}, "new": {}}, "tools": {"ops.*": {"tags": ["y"]}}}
    file = written(document_of(**newer))
    refused(
        toolcrib("import", file), "the bundle `inner` is already registered", "the metadata of `ops.*` is already reg"
    )
    assert exported() == before

    tried = toolcrib("import", file, "--replace", "--dry-run")
    assert tried.out.splitlines() == [
        "would be added: the bundle `new`",
        "would be replaced: the metadata of `ops.*`",
        "would be replaced: the bundle `inner`",
    ]
    assert exported() == before
    assert toolcrib("import", file, "--replace", "--json").json["dry_run"] is False
    assert exported() == {**before, **newer, "bundles": {**before["bundles"], **newer["bundles"]}}
    assert "Nothing changes" in toolcrib("import", file).err


def test_items_of_the_configuration_cannot_be_replaced_by_an_import() -> None:
    greet = {"mine": {"tools": {"greet": {"description": "Other.", "command": ["true"]}}}}
    file = written(document_of(declared=greet, bundles={"b": {}}))
    refused(toolcrib("import", file, "--replace"), "`mine.greet`: the configuration")


def test_doctor_and_export_report_unreadable_registrations() -> None:
    toolcrib(*DISK, "--", "df")
    store = RegistrationStore(default_registrations(), Path("mcp.json"))
    store.update(lambda rows: (*rows, Registration("tool", "ops.bad", "{"), Registration("charm", "c", "{}")))
    told = toolcrib("doctor")
    assert told.code == 0
    assert "Registered but not used: `ops.bad`: the stored row is damaged" in told.out.replace("\n", " ")
    assert len(json.loads(toolcrib("doctor", "--json").out)["passed_over"]) == 2
    ended = toolcrib("export")
    assert [*json.loads(ended.out)["toolcrib"]["declared"]["ops"]["tools"]] == ["disk_free"]
    assert "Left out: `ops.bad`" in ended.err
    assert len(registered()) == 3


@pytest.mark.skipif(os.name != "posix", reason="modes of files are those of POSIX")
def test_an_exported_file_is_readable_only_by_its_owner() -> None:
    toolcrib("export", "-o", "out.json")
    assert stat.S_IMODE(Path("out.json").stat().st_mode) == 0o600


def test_registrations_of_a_deleted_configuration_can_still_be_exported(config: Path) -> None:
    toolcrib(*DISK, "--", "df")
    config.unlink()
    assert "disk_free" in toolcrib("export").out
    refused(toolcrib("export", "typo.json"), "typo.json: file not found")


# -- round trip -------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c d", "e/f", "g~h", "i.j", "é"])
PLAIN = st.sampled_from(["a", "b", "c"])
TEXTS = st.lists(NAMES, max_size=2)
COMMANDS = st.fixed_dictionaries({"description": NAMES, "command": st.lists(PLAIN, min_size=1, max_size=2)})
CATEGORIES: Any = st.deferred(
    lambda: st.dictionaries(
        NAMES,
        st.fixed_dictionaries(
            {}, optional={"title": NAMES, "summary": NAMES, "tools": TEXTS, "tagged": TEXTS, "categories": CATEGORIES}
        ),
        max_size=2,
    )
)
DOCUMENTS = st.fixed_dictionaries(
    {
        "declared": st.dictionaries(
            PLAIN,
            st.fixed_dictionaries(
                {"tools": st.dictionaries(PLAIN, COMMANDS, max_size=2)}, optional={"title": NAMES, "summary": NAMES}
            ),
            max_size=2,
        ),
        "categories": CATEGORIES,
        "tools": st.dictionaries(NAMES, st.fixed_dictionaries({}, optional={"tags": TEXTS, "risk": NAMES}), max_size=3),
        "bundles": st.dictionaries(
            PLAIN, st.fixed_dictionaries({}, optional={"required": TEXTS, "description": NAMES}), max_size=3
        ),
        "capabilities": st.dictionaries(
            NAMES, st.one_of([st.fixed_dictionaries({key: PLAIN}) for key in ("program", "env", "path")]), max_size=2
        ),
    }
)


@given(DOCUMENTS, st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_importing_an_export_into_an_empty_store_gives_the_same_export(members: Any, chance: Any) -> None:
    """The order of registration does not matter."""
    rows = [*read_document(json.dumps({"toolcrib": members, "version": 1}), Path("d.json"))]
    chance.shuffle(rows)
    with TemporaryDirectory() as folder:
        first, second = (RegistrationStore(Path(folder) / name) for name in ("one", "two"))
        first.update(lambda _: rows)
        whole, unreadable = document(first.all())
        assert unreadable == ()
        assert [*whole["toolcrib"]] == [*KEYS]
        second.update(lambda _: read_document(json.dumps(whole), Path("d.json")))
        again, _ = document(second.all())
        assert json.dumps(again) == json.dumps(whole)
        assert {row.key for row in second.all()} == {row.key for row in first.all()}


def test_unregister_without_a_name_is_a_usage_error() -> None:
    ended = toolcrib("unregister")
    assert ended.code == 2
    assert "Name what to remove" in ended.err


def test_a_json_body_is_registered_as_json_and_its_placeholders_become_arguments() -> None:
    toolcrib(
        "register", "http", "weather.send", "https://weather.example.com/", "--description", "Weather.",
        "--method", "POST", "--json-body", '{"city": "{city}", "days": ["{day}"]}',
    )  # fmt: skip
    tool = exported()["declared"]["weather"]["tools"]["send"]
    assert tool["http"]["json"] == {"city": "{city}", "days": ["{day}"]}
    assert tool["input_schema"]["required"] == ["city", "day"]


@pytest.mark.parametrize("words", [("--header", "Accept"), ("--json-body", "{city}")])
def test_a_header_without_a_value_and_an_invalid_json_body_are_usage_errors(words: tuple[str, ...]) -> None:
    ended = toolcrib("register", "http", "a.b", "https://weather.example.com/", "--description", "Weather.", *words)
    assert ended.code == 2
