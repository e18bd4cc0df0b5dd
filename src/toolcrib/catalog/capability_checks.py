"""Checks for capabilities of the system: programs, variables, files, packages, addresses and custom functions."""

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
    """Checks for one capability. It can run in any thread."""

    @property
    def is_quick(self) -> bool:
        """Whether the check only asks this machine, so that a request can wait for it."""
        ...

    @property
    def looked_for(self) -> str:
        """What the check looks for. Only the owner reads it: it can contain paths, variables and addresses."""
        ...

    def why_missing(self, timeout_s: float) -> str | None:
        """Return why the capability is missing, or None if it is available.

        Any caller can read the reason, so it must not name programs, variables or paths. Toolcrib does not wait longer
        than `timeout_s` seconds for the answer.
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
    """A file or folder. `~` is the home folder of the current user; a relative path starts at the working directory."""

    path: str
    is_quick = True

    @property
    def looked_for(self) -> str:
        return f"the file or folder `{self.path}`"

    def why_missing(self, timeout_s: float) -> str | None:
        return None if Path(self.path).expanduser().exists() else "its file or folder does not exist"


@dataclass(frozen=True, slots=True)
class PackageImportable:
    """A Python package or module that can be imported. The check does not import it."""

    name: str
    is_quick = True

    @property
    def looked_for(self) -> str:
        return f"the Python package `{self.name}`"

    def why_missing(self, timeout_s: float) -> str | None:
        return None if _is_importable(self.name) else f"the Python package `{self.name}` is not installed"


@dataclass(frozen=True, slots=True)
class AddressAccepts:
    """A host that accepts TCP connections on a port."""

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
            return "nothing accepts connections at its address"


@dataclass(frozen=True, slots=True)
class OwnCheck:
    """A custom function that returns True if the capability is available, or False, or a string with the reason."""

    function: Callable[[], bool | str]
    is_quick = False

    @property
    def looked_for(self) -> str:
        return f"what `{getattr(self.function, '__qualname__', self.function)}` looks for"

    def why_missing(self, timeout_s: float) -> str | None:
        said = self.function()
        if said is True:
            return None
        return (said if isinstance(said, str) else "") or "it is not available"


def _is_importable(name: str) -> bool:
    """Return whether the module `name` exists. `find_spec` alone would import the parent packages of a submodule."""
    top, *below = name.split(".")
    spec = importlib.util.find_spec(top)
    path = top
    for part in below:
        if spec is None or spec.submodule_search_locations is None:
            return False
        path = f"{path}.{part}"
        spec = PathFinder.find_spec(path, [*spec.submodule_search_locations])
    return spec is not None
