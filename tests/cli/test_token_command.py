"""`toolcrib token`: a token, and the hash that stands for it in the file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from tests.cli.running import toolcrib

from toolcrib.config import parse_config, read_config
from toolcrib.core.principal import Principal


def test_the_token_alone_is_on_standard_output_and_its_entry_is_one_that_the_file_takes() -> None:
    ended = toolcrib("token", "ci", "--scope", "metrics", "--scope", "read")
    token = ended.out.strip()
    assert len(token) > 40
    entry = json.loads(next(line for line in ended.err.splitlines() if line.startswith("{")))
    assert token not in ended.err
    config = parse_config(json.dumps({"toolcrib": {"auth": {"tokens": [entry]}}}), Path("mcp.json"))
    (known,) = config.auth.tokens
    assert known.digest == hashlib.sha256(token.encode()).digest()
    assert known.principal == Principal("ci", frozenset({"metrics", "read"}))


def test_no_two_are_alike_and_json_has_both_parts() -> None:
    made = [toolcrib("token", "ci", "--json").json for _ in range(2)]
    assert made[0]["token"] != made[1]["token"]
    assert made[0]["entry"]["sha256"] == hashlib.sha256(made[0]["token"].encode()).hexdigest()


@pytest.mark.parametrize("name", ["local", "a\nb", "x" * 300])
def test_a_name_that_nobody_can_have_is_refused(name: str) -> None:
    assert toolcrib("token", name).code == 2


@pytest.mark.parametrize("name", ["", "  "])
def test_a_principal_needs_a_name(name: str) -> None:
    ended = toolcrib("token", name)
    assert (ended.code, ended.out) == (2, "")
    assert "a principal needs a name" in ended.err


def test_the_entry_can_be_added_to_a_file_whose_comments_and_other_tokens_stay(tmp_path: Path) -> None:
    (config := tmp_path / "mcp.json").write_text('{\n  // mine\n  "mcpServers": {}\n}\n')
    tokens = [toolcrib("token", name, "--write", config).out.strip() for name in ("ada", "ben")]
    text = config.read_text()
    assert "// mine" in text
    digests = [hashlib.sha256(token.encode()).digest() for token in tokens]
    assert [known.digest for known in read_config(config).auth.tokens] == digests
    assert not any(token in text for token in tokens)


@pytest.mark.parametrize("text", [None, "{", '{"toolcrib": {"auth": {"tokens": {}}}}'])
def test_a_file_that_cannot_take_an_entry_is_left_as_it_is_and_no_token_is_shown(
    text: str | None, tmp_path: Path
) -> None:
    config = tmp_path / "mcp.json"
    if text is not None:
        config.write_text(text)
    ended = toolcrib("token", "ada", "--write", config)
    assert (ended.code, ended.out) == (2, "")
    assert (config.read_text() if config.exists() else None) == text
