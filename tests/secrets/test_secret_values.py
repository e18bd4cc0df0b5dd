"""The values behind `${keyring:NAME}`, `${input:ID}` and `${file:PATH}`, and the variables of an `envFile`."""

import os
from pathlib import Path

import pytest

from toolcrib.core.placeholders import Problem, Reference
from toolcrib.secrets.keys import KeyUnavailable
from toolcrib.secrets.sealing import Seal
from toolcrib.secrets.secret_store import SecretStore
from toolcrib.secrets.secret_values import MAX_FILE_BYTES, SecretValues, parse_env_file

CANARY = "canary-5be7"


@pytest.fixture
def store(tmp_path: Path) -> SecretStore:
    return SecretStore(tmp_path / "secrets.sqlite", lambda: Seal([b"k" * 32]))


@pytest.fixture
def values(tmp_path: Path, store: SecretStore) -> SecretValues:
    return SecretValues(tmp_path / "mcp.json", store)


def keyring(name: str) -> Reference:
    return Reference("keyring", name)


def file(path: object) -> Reference:
    return Reference("file", str(path))


def test_a_stored_secret_and_an_input_are_read_when_they_are_needed(
    values: SecretValues, store: SecretStore, tmp_path: Path
) -> None:
    store.set("github", "for all")
    store.set("github", "for this file", tmp_path / "mcp.json")
    assert values.value_of(keyring("github")) == "for all"
    assert values.value_of(Reference("input", "github")) == "for this file"
    store.set("github", "newer")
    assert values.value_of(keyring("github")) == "newer"


@pytest.mark.parametrize("kind", ["keyring", "input"])
def test_a_missing_value_names_the_command_that_stores_it(kind: str, values: SecretValues, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="has no value yet") as problem:
        values.value_of(Reference(kind, "my key"))
    where = f" --config {tmp_path / 'mcp.json'}" if kind == "input" else ""
    assert problem.value.remedy == f"Run `toolcrib secret set 'my key'{where}`."


def test_a_value_of_a_different_key_names_what_to_do(values: SecretValues, tmp_path: Path) -> None:
    SecretStore(tmp_path / "secrets.sqlite", lambda: Seal([b"x" * 32])).set("github", CANARY)
    with pytest.raises(Problem, match="cannot be decrypted: a different key sealed this") as problem:
        values.value_of(keyring("github"))
    assert "toolcrib secret set github" in problem.value.remedy


def test_a_key_that_cannot_be_read_is_no_reason_to_go_on_without_the_value(tmp_path: Path, store: SecretStore) -> None:
    def locked() -> Seal:
        raise KeyUnavailable("Unlock the keyring")

    store.set("github", CANARY)
    values = SecretValues(tmp_path / "mcp.json", SecretStore(tmp_path / "secrets.sqlite", locked))
    with pytest.raises(Problem) as problem:
        values.value_of(keyring("github"))
    assert problem.value.remedy == "Unlock the keyring"


def test_a_damaged_store_is_a_problem(tmp_path: Path, values: SecretValues) -> None:
    (tmp_path / "secrets.sqlite").write_bytes(b"not a database, but long enough to be taken for one" * 100)
    with pytest.raises(Problem, match=r"secrets\.sqlite"):
        values.value_of(keyring("github"))


@pytest.mark.parametrize(
    ("content", "value"),
    [("a\n", "a"), ("a\r\n", "a"), ("a", "a"), ("a\n\n", "a\n"), (" a \n", " a "), ("", ""), ("\ufeffa", "a")],
)
def test_a_file_is_read_without_its_last_line_end(
    content: str, value: str, values: SecretValues, tmp_path: Path
) -> None:
    (tmp_path / "token").write_bytes(content.encode())
    assert values.value_of(file("token")) == value
    assert values.value_of(file(tmp_path / "token")) == value


def test_a_path_may_begin_with_the_home_folder(
    values: SecretValues, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "token").write_text("value")
    assert values.value_of(file("~/token")) == "value"


def test_a_file_that_is_no_text_is_refused_without_showing_it(values: SecretValues, tmp_path: Path) -> None:
    contents = {
        "UTF-8": CANARY.encode("utf-16"),
        "NUL": f"{CANARY}\0".encode(),
        "longer": CANARY.encode() * MAX_FILE_BYTES,
    }
    for told, content in contents.items():
        (tmp_path / "token").write_bytes(content)
        with pytest.raises(Problem, match=told) as problem:
            values.value_of(file("token"))
        assert "canary" not in f"{problem.value!r} {problem.value.__cause__!r}"


def test_a_missing_file_and_a_folder_are_refused(values: SecretValues, tmp_path: Path) -> None:
    with pytest.raises(Problem, match="gone: file not found"):
        values.value_of(file("gone"))
    with pytest.raises(Problem):
        values.value_of(file(tmp_path))
    with pytest.raises(Problem, match="NUL"):
        values.value_of(file("a\0b"))


@pytest.mark.skipif(os.name == "nt", reason="no such files")
def test_devices_and_pipes_are_refused_at_once(values: SecretValues, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", "/dev/stdin"):
        with pytest.raises(Problem, match=r"not a regular file|No such device"):
            values.value_of(file(path))


def test_a_relative_env_file_starts_at_the_workspace(values: SecretValues, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / ".env").write_text("TOKEN=value\n")
    assert values.variables_in(".env", tmp_path / "project") == {"TOKEN": "value"}


# Each was compared with `parseEnvFile` of microsoft/vscode, `src/vs/base/common/envfile.ts`, read in November 2026.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1\nB = two words \n", {"A": "1", "B": "two words"}),
        ("export A=1\n", {"A": "1"}),
        ("A: 1\n", {"A": "1"}),
        ("# comment\n\nA=1 # comment\n", {"A": "1"}),
        ("A=a#b\n", {"A": "a"}),
        ("A='a # b'\nB=\"a # b\"\nC=`a # b`\n", {"A": "a # b", "B": "a # b", "C": "a # b"}),
        ('A="one\\ntwo\\r"\n', {"A": "one\ntwo\r"}),
        ("A='one\\ntwo'\n", {"A": "one\\ntwo"}),
        ("A=x=y:z\n", {"A": "x=y:z"}),
        ('A="\n', {"A": '"'}),
        ("A=\n", {"A": ""}),
        ("A=1\r\nB=2\rC=3", {"A": "1", "B": "2", "C": "3"}),
        ("A=1\nA=2\n", {"A": "2"}),
        ("=1\nno variable\n'=' \n", {}),
        ("A=$B ${C}\n", {"A": "$B ${C}"}),
        ("A='it\\'s'\n", {"A": "it\\'s"}),
    ],
)
def test_an_env_file_is_read_as_by_vs_code(text: str, expected: dict[str, str]) -> None:
    assert parse_env_file(text) == expected
