"""`toolcrib token`: creates a token, and the entry with its hash for the configuration."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from tests.cli.running import toolcrib

from toolcrib.config import parse_config, read_config
from toolcrib.core.principal import Principal


def test_standard_output_has_only_the_token_and_the_entry_is_valid() -> None:
    ended = toolcrib("token", "ci", "--scope", "metrics", "--scope", "read")
    token = ended.out.strip()
    assert len(token) > 40
    entry = json.loads(next(line for line in ended.err.splitlines() if line.startswith("{")))
    assert token not in ended.err
    config = parse_config(json.dumps({"toolcrib": {"auth": {"tokens": [entry]}}}), Path("mcp.json"))
    (known,) = config.auth.tokens
    assert known.digest == hashlib.sha256(token.encode()).digest()
    assert known.principal == Principal("ci", frozenset({"metrics", "read"}))


def test_every_token_is_different_and_json_has_both_parts() -> None:
    made = [toolcrib("token", "ci", "--json").json for _ in range(2)]
    assert made[0]["token"] != made[1]["token"]
    assert made[0]["entry"]["sha256"] == hashlib.sha256(made[0]["token"].encode()).hexdigest()


@pytest.mark.parametrize("name", ["local", "a\nb", "x" * 300])
def test_a_reserved_or_invalid_principal_name_is_refused(name: str) -> None:
    assert toolcrib("token", name).code == 2


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_principal_name_is_refused(name: str) -> None:
    ended = toolcrib("token", name)
    assert (ended.code, ended.out) == (2, "")
    assert "a principal needs a name" in ended.err


def test_the_entry_is_written_and_comments_and_other_tokens_are_preserved(tmp_path: Path) -> None:
    (config := tmp_path / "mcp.json").write_text('{\n  // mine\n  "mcpServers": {}\n}\n')
    tokens = [toolcrib("token", name, "--write", config).out.strip() for name in ("ada", "ben")]
    text = config.read_text()
    assert "// mine" in text
    digests = [hashlib.sha256(token.encode()).digest() for token in tokens]
    assert [known.digest for known in read_config(config).auth.tokens] == digests
    assert not any(token in text for token in tokens)


@pytest.mark.parametrize("text", [None, "{", '{"toolcrib": {"auth": {"tokens": {}}}}'])
def test_no_token_is_printed_if_the_file_cannot_take_an_entry(text: str | None, tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    if text is not None:
        config.write_text(text)
    ended = toolcrib("token", "ada", "--write", config)
    assert (ended.code, ended.out) == (2, "")
    assert (config.read_text() if config.exists() else None) == text
