"""Packages of vendors that are imported on first use, because importing all takes longer than collecting the tests."""

from __future__ import annotations

from functools import cached_property
from importlib import import_module
from typing import Any


class Vendor:
    """A module, or a name of a module, that is imported when one of its attributes is first read."""

    def __init__(self, module: str, name: str | None = None) -> None:
        self._module, self._name = module, name

    @cached_property
    def _itself(self) -> Any:
        module = import_module(self._module)
        return module if self._name is None else getattr(module, self._name)

    def __getattr__(self, name: str) -> Any:
        # pytest looks up such names in every object of a test module.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._itself, name)
