"""The vendors' packages, imported when a test uses them: importing all takes longer than collecting all tests."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any


class Vendor:
    """A module, or something of a module, that is imported when an attribute of it is first read."""

    def __init__(self, module: str, name: str | None = None) -> None:
        self._module, self._name = module, name

    @cached_property
    def _itself(self) -> Any:
        module = import_module(self._module)
        return module if self._name is None else getattr(module, self._name)

    def __getattr__(self, name: str) -> Any:
        # pytest looks for such names in everything that a test module holds.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._itself, name)
