"""Checks of what a system offers: programs, variables, places, addresses, packages, and what a function says."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Protocol


class Checker(Protocol):
    """Looks for one thing, in whatever thread."""

    @property
    def is_quick(self) -> bool:
        """Whether nothing but this machine is asked, so that whoever looks can wait for it."""
        ...

    @property
    def looked_for(self) -> str:
        """What it looks for, in words for its owner alone: they may hold paths, variables and addresses."""
        ...

    def why_missing(self, timeout_s: float) -> str | None:
        """Why it is missing, in words that any caller may read, so without names of programs, variables and places.

        None where it is there.

        After `timeout_s` nobody waits for it any more.
        """
        ...


@dataclass(frozen=True, slots=True)
class ProgramOnPath:
    """A program that can be started by its name."""

    name: str
    is_quick = True

    @property
    def looked_for(self) -> str:
        return f"the program `{self.name}` on the PATH"

    def why_missing(self, timeout_s: float) -> str | None:
        return None if shutil.which(self.name) is not None else "its program is not on the PATH"


@dataclass(frozen=True, slots=True)
class VariableSet:
    """An environment variable that is set and not empty."""

    name: str
    is_quick = True

    @property
    def looked_for(self) -> str:
        return f"the environment variable `{self.name}`"

    def why_missing(self, timeout_s: float) -> str | None:
        return None if os.environ.get(self.name) else "its environment variable is not set"


@dataclass(frozen=True, slots=True)
class PathExists:
    """A file or folder; `~` is the home of whoever runs this, and a relative path begins where the program runs."""

    path: str
    is_quick = True

    @property
    def looked_for(self) -> str:
        return f"the file or folder `{self.path}`"

    def why_missing(self, timeout_s: float) -> str | None:
        return None if Path(self.path).expanduser().exists() else "its file or folder is not there"


@dataclass(frozen=True, slots=True)
class PackageImportable:
    """A Python package or module that could be imported; nothing is."""

    name: str
    is_quick = True

    @property
    def looked_for(self) -> str:
        return f"the Python package `{self.name}`"

    def why_missing(self, timeout_s: float) -> str | None:
        return None if _is_importable(self.name) else f"the Python package `{self.name}` is not installed"


@dataclass(frozen=True, slots=True)
class AddressAccepts:
    """A host that takes a TCP connection at a port."""

    host: str
    port: int
    is_quick = False

    @property
    def looked_for(self) -> str:
        return f"a connection to {self.host}:{self.port}"

    def why_missing(self, timeout_s: float) -> str | None:
        try:
            with socket.create_connection((self.host, self.port), timeout_s):
                return None
        except OSError:
            return "nothing takes connections at its address"


@dataclass(frozen=True, slots=True)
class OwnCheck:
    """Whatever a function of one's own says: True where it is there; else False, or a text that says why not."""

    function: Callable[[], bool | str]
    is_quick = False

    @property
    def looked_for(self) -> str:
        return f"what `{getattr(self.function, '__qualname__', self.function)}` looks for"

    def why_missing(self, timeout_s: float) -> str | None:
        said = self.function()
        if said is True:
            return None
        return (said if isinstance(said, str) else "") or "it is not there"


def _is_importable(name: str) -> bool:
    """Not by `find_spec` alone: that imports what is above a submodule."""
    top, *below = name.split(".")
    spec = importlib.util.find_spec(top)
    path = top
    for part in below:
        if spec is None or spec.submodule_search_locations is None:
            return False
        path = f"{path}.{part}"
        spec = PathFinder.find_spec(path, [*spec.submodule_search_locations])
    return spec is not None
