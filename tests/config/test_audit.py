"""Tests for the setting `toolcrib.audit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolcrib.config import parse_config
from toolcrib.config.configuration import DEFAULT_AUDIT, Audit
from toolcrib.core.errors import InvalidConfig

FILE = Path("/home/ada/mcp.json")


def read(*audit: Any) -> Audit | None:
    ours = {"audit": audit[0]} if audit else {}
    return parse_config(json.dumps({"mcpServers": {}, "toolcrib": ours}), FILE, {}).audit


def test_the_audit_is_on_by_default_and_can_be_disabled() -> None:
    assert read() == read(True) == read({}) == DEFAULT_AUDIT == Audit(None, 64, 30, arguments=False, redact=())
    assert read(False) is None


def test_the_default_audit_file_is_in_the_state_folder_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert DEFAULT_AUDIT.place == tmp_path / "toolcrib" / "audit.sqlite"


def test_every_audit_setting_is_read() -> None:
    audit = read({"path": "/a.sqlite", "max_mb": 1, "max_days": 7, "arguments": True, "redact": ["customer", "iban"]})
    assert audit is not None
    assert audit == Audit(Path("/a.sqlite"), 1, 7, arguments=True, redact=("customer", "iban"))
    assert audit.place == Path("/a.sqlite")


def test_an_audit_path_is_relative_to_the_configuration_or_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/grace")
    assert read({"path": "logs/a.sqlite"}) == Audit(FILE.parent / "logs" / "a.sqlite")
    assert read({"path": "~/a.sqlite"}) == Audit(Path("/home/grace/a.sqlite"))


@pytest.mark.parametrize(
    ("audit", "complaint"),
    [
        ("yes", "toolcrib.audit: must be true, false or an object"),
        (None, "toolcrib.audit: must be true, false or an object"),
        (1, "toolcrib.audit: must be true, false or an object"),
        ({"max_md": 3}, "unknown key `max_md` (did you mean `max_mb`?)"),
        ({"max_mb": 0}, "toolcrib.audit.max_mb: must be a whole number of megabytes, from 1 to 100000"),
        ({"max_days": 0.5}, "toolcrib.audit.max_days: must be a whole number of days, from 1 to 36500"),
        ({"arguments": "all"}, "toolcrib.audit.arguments: must be true or false"),
        ({"path": 3}, "toolcrib.audit.path: must be a string"),
        ({"path": False}, "toolcrib.audit.path: must be a string"),
        ({"path": "~nobody-of-this-name/a"}, "toolcrib.audit.path: "),
        ({"redact": False}, "toolcrib.audit.redact: must be a list of strings"),
        ({"redact": ""}, "toolcrib.audit.redact: each string needs a letter or a digit"),
        ({"redact": [3]}, "toolcrib.audit.redact.0: must be a string"),
        ({"redact": ["_-"]}, "toolcrib.audit.redact: each string needs a letter or a digit"),
    ],
)
def test_an_invalid_audit_setting_is_reported_with_its_path(audit: Any, complaint: str) -> None:
    with pytest.raises(InvalidConfig) as error:
        read(audit)
    assert complaint in error.value.message
