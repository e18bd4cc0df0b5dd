"""Finds the commands with which other programs can start Toolcrib."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import orjson

from toolcrib.version import VERSION

_PASSING = re.compile(r"[/\\](?:archive-v\d+|environments-v\d+|builds-v\d+)[/\\]")
"""Matches the path of an environment in uv's cache, which may be deleted at any time."""


def own_command(argv0: str, prefix: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command that starts this Toolcrib from anywhere, without a PATH.

    `argv0` and `prefix` are those of `sys`.

    The command is the absolute path of the program as it was called. Symbolic links are not followed, because an
    upgrade keeps the link and changes its target. A program that `uvx` runs is in a cache that may be deleted, so it is
    run through `uv` again. The version is fixed, so that no newer version starts without being asked for.
    """
    uv = environ.get("UV") or shutil.which("uv")
    if _PASSING.search(prefix + os.sep) and uv is not None:
        return (os.path.abspath(uv), "tool", "run", "--from", _requirement(), "toolcrib")  # noqa: PTH100  as above
    called = Path(argv0)
    if called.stem == "toolcrib":
        found = shutil.which(argv0) or argv0
        return (os.path.abspath(found),)  # noqa: PTH100  `resolve` would follow the links
    sibling = shutil.which("toolcrib", path=str(Path(sys.executable).parent))
    return (sibling,) if sibling is not None else (sys.executable, "-m", "toolcrib")


def shared_command(prefix: str) -> tuple[str, ...]:
    """Return the command that starts Toolcrib on any machine, for a file that several people share.

    Each of them needs `toolcrib` on the PATH. A program that `uvx` runs is run by `uvx` again, in the same version,
    unless it was installed from a folder of this machine.
    """
    requirement = _requirement()
    if _PASSING.search(prefix + os.sep) and "file:" not in requirement:
        return ("uvx", "--from", requirement, "toolcrib")
    return ("toolcrib",)


def _requirement() -> str:
    """Return the requirement that installs this Toolcrib: its origin, or its version in the package index."""
    try:
        origin = distribution("toolcrib").read_text("direct_url.json")
    except PackageNotFoundError:
        origin = None
    if origin is None:
        return f"toolcrib=={VERSION}"
    wire = orjson.loads(origin)
    vcs = wire.get("vcs_info")
    return f"toolcrib @ {vcs['vcs']}+{wire['url']}@{vcs['commit_id']}" if vcs else f"toolcrib @ {wire['url']}"
