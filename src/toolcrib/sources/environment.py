"""Chooses the environment variables that a started program inherits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import PurePath

from toolcrib.audit.redaction import REDACTED, Redaction

ORDINARY = (
    "LANG", "LANGUAGE", "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME",
    "TZ", "TMPDIR", "XDG_*",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS",
)  # fmt: skip
"""Variables that every program may inherit, as patterns that ignore case. No other `LC_*` is included: ssh servers
accept all of them by default, so people use such names for other values."""

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")

RUNNERS: Mapping[str, Sequence[str]] = {
    "UV_*": ("uv", "uvx", "pipx"),
    "PIP_*": ("pip", "pip3", "pipx"),
    "NPM_CONFIG_*": ("npm", "npx", "pnpm", "pnpx", "yarn", "bun", "bunx"),
}
"""The settings of package runners, as patterns, and the runners that read them."""

PUBLISHING = ("UV_PUBLISH_*", "NPM_CONFIG_OTP", "NPM_CONFIG_//*:_OTP")
"""Credentials for publishing packages. No program inherits them."""

_WITH_USER = re.compile(r"(?:^|//)[^\s/?#@]*@")
"""Matches an address with a user name. Some proxies are written without a scheme."""


def inherited(environ: Mapping[str, str], command: Sequence[str] | None = None) -> dict[str, str]:
    """Return the part of `environ` that a server started by `command` may inherit; None stands for a declared command.

    Only servers inherit the settings of package runners. A secret, recognized by its name or its value, is inherited
    only by the runner that needs it for its registry or its proxy.
    """
    families = () if command is None else tuple(RUNNERS)
    own = () if command is None else _settings_of(command)
    may_have_secrets = (*own, *PROXIES) if own else ()
    return {
        name: value
        for name, value in environ.items()
        if _is_one(name, (*ORDINARY, *PROXIES, *families))
        and not _is_one(name, PUBLISHING)
        and not value.startswith("()")  # a shell function
        and (_is_one(name, may_have_secrets) or not _is_secret(name, value))
    }


def _settings_of(command: Sequence[str]) -> tuple[str, ...]:
    """Return the settings that the package runner in `command` reads; empty if it is not a package runner."""
    runner = _program(command[0])
    if runner == "cmd":  # on Windows, npx is often started as `cmd /c npx`
        runner = next((_program(part) for part in command[1:] if not part.startswith("/")), "")
    return tuple(pattern for pattern, runners in RUNNERS.items() if runner in runners)


def _program(path: str) -> str:
    return re.sub(r"\.(?:exe|cmd|bat)$", "", PurePath(path).name.lower())


def _is_secret(name: str, value: str) -> bool:
    redaction = _redaction()
    return redaction.is_secret_key(name) or _WITH_USER.search(value) is not None or redaction.text(value) == REDACTED


@cache
def _redaction() -> Redaction:
    """Compile the patterns on first use, because that takes a millisecond."""
    return Redaction()


def _is_one(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name.upper(), pattern) for pattern in patterns)
