"""The interface of a catalog for the rendering of prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from toolcrib.core.tools import Path, ToolPointer


class CatalogReader(Protocol):
    """A catalog as one principal sees it."""

    def summary(self, category: Path) -> str:
        """Return the summary of `category`. Empty if it has none.

        Raises:
            UnknownPath: the category does not exist, or may not be seen.
        """
        ...

    def pointers(self, category: Path) -> Sequence[ToolPointer]:
        """Return pointers to the tools in or below `category`, in any order.

        Raises:
            UnknownPath: the category does not exist, or may not be seen.
        """
        ...
