"""What a prompt asks of a catalog; whoever renders one implements it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from toolcrib.core.tools import Path, ToolPointer


class CatalogReader(Protocol):
    """A catalog as one principal sees it."""

    def summary(self, category: Path) -> str:
        """What is in `category`; empty where nobody said.

        Raises:
            UnknownPath: there is no such category, or it may not be seen.
        """
        ...

    def pointers(self, category: Path) -> Sequence[ToolPointer]:
        """To the tools that stand at or below `category`, in any order.

        Raises:
            UnknownPath: there is no such category, or it may not be seen.
        """
        ...
