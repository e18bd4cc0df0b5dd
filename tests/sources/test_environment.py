"""The environment variables that a program we start inherits."""

from __future__ import annotations

import pytest

from toolcrib.sources.environment import inherited

ORDINARY = {
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "XDG_CACHE_HOME": "/home/ada/.cache",
    "https_proxy": "http://proxy.example:3128",
    "NO_PROXY": "localhost",
    "SSL_CERT_FILE": "/etc/ssl/all.pem",
}
SETTINGS = {
    "UV_CACHE_DIR": "/home/ada/.uv",
    "UV_INDEX_URL": "https://index.example/simple",
    "PIP_INDEX_URL": "https://index.example/simple",
    "npm_config_registry": "https://npm.example/",
}
UV = {"UV_INDEX_CORP_PASSWORD": "p4ss"}
PIP = {"PIP_EXTRA_INDEX_URL": "https://one.example/simple https://ada:p4ss@two.example/simple"}
NPM = {"NPM_CONFIG_//npm.example/:_authToken": "t0ken", "npm_config__auth": "YWRhOnA0c3M="}
PROXY = {"HTTPS_PROXY": "http://ada:p4ss@proxy.example:3128", "ALL_PROXY": "ada:p4ss@proxy.example:3128"}
PUBLISHING = {"UV_PUBLISH_TOKEN": "pypi-x", "UV_PUBLISH_USERNAME": "ada", "NPM_CONFIG_OTP": "123456"}
OTHERS = {"AWS_SECRET_ACCESS_KEY": "x", "LC_SECRET": "x", "LC_PAPER": "a4", "GITHUB_TOKEN": "x", "EDITOR": "vi"}
SECRETS = {**UV, **PIP, **NPM, **PROXY}
ENVIRON = {**ORDINARY, **SETTINGS, **SECRETS, **PUBLISHING, **OTHERS}


def test_a_server_inherits_settings_but_no_secrets() -> None:
    assert inherited(ENVIRON, ["python3", "server.py", "uvx"]) == {**ORDINARY, **SETTINGS}


def test_a_declared_command_inherits_no_settings_of_package_runners() -> None:
    assert inherited(ENVIRON) == ORDINARY


@pytest.mark.parametrize(
    ("command", "own"),
    [
        (["uvx", "server"], UV),
        (["/usr/local/bin/uv", "run", "server"], UV),
        (["pip", "download", "x"], PIP),
        (["pipx", "run", "server"], {**UV, **PIP}),
        (["npx", "-y", "server"], NPM),
        (["npx.cmd", "-y", "server"], NPM),
        (["cmd", "/c", "npx", "-y", "server"], NPM),
    ],
)
def test_a_package_runner_inherits_the_credentials_it_needs_to_fetch(command: list[str], own: dict[str, str]) -> None:
    assert inherited(ENVIRON, command) == {**ORDINARY, **SETTINGS, **PROXY, **own}


@pytest.mark.parametrize("command", [None, ["server"], ["uv", "run", "x"], ["npx", "x"]])
def test_no_program_inherits_credentials_for_publishing_or_unrelated_variables(command: list[str] | None) -> None:
    assert not {*PUBLISHING, *OTHERS} & inherited(ENVIRON, command).keys()


@pytest.mark.parametrize(
    "value",
    [
        "https://ada:p4ss@index.example/simple",
        "corp=https://t0ken@index.example/simple",
        "https://x.example/?token=abc",
    ],
)
def test_an_address_that_contains_credentials_is_a_secret(value: str) -> None:
    assert inherited({"UV_DEFAULT_INDEX": value}, ["server"]) == {}
    assert inherited({"UV_DEFAULT_INDEX": value}, ["uvx", "server"]) == {"UV_DEFAULT_INDEX": value}
