"""The commands with which another program can start Toolcrib."""

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
"""In the path of an environment that uv keeps in its cache, until somebody clears it."""


def own_command(argv0: str, prefix: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The words that start this Toolcrib from anywhere, without a PATH.

    `argv0` and `prefix` as `sys` has them.

    That is the absolute path of the program as it was called: not where its links lead, for the link is what stays
    when the program is brought up to date. What `uvx` runs stands in a cache that may be cleared, so it is run
    through `uv` again; the version is named, or the next one would come unasked.
    """
    uv = environ.get("UV") or shutil.which("uv")
    if _PASSING.search(prefix + os.sep) and uv is not None:
        return (os.path.abspath(uv), "tool", "run", "--from", _requirement(), "toolcrib")  # noqa: PTH100  as above
    called = Path(argv0)
    if called.stem == "toolcrib":
        found = shutil.which(argv0) or argv0
        return (os.path.abspath(found),)  # noqa: PTH100  `resolve` would follow the links
    beside = shutil.which("toolcrib", path=str(Path(sys.executable).parent))
    return (beside,) if beside is not None else (sys.executable, "-m", "toolcrib")


def shared_command(prefix: str) -> tuple[str, ...]:
    """The words that start Toolcrib on any machine, for a file that several people share.

    `toolcrib` has to be on the PATH of each of them. What `uvx` runs is run by `uvx` again, in the same version, unless
    it was made of a folder that only this machine has.
    """
    requirement = _requirement()
    if _PASSING.search(prefix + os.sep) and "file:" not in requirement:
        return ("uvx", "--from", requirement, "toolcrib")
    return ("toolcrib",)


def _requirement() -> str:
    """What to install for this very Toolcrib: where it came from, or its version in the package index."""
    try:
        origin = distribution("toolcrib").read_text("direct_url.json")
    except PackageNotFoundError:
        origin = None
    if origin is None:
        return f"toolcrib=={VERSION}"
    told = orjson.loads(origin)
    vcs = told.get("vcs_info")
    return f"toolcrib @ {vcs['vcs']}+{told['url']}@{vcs['commit_id']}" if vcs else f"toolcrib @ {told['url']}"
