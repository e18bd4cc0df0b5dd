"""Converts a model's final answer to the requested type."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

OutputT = TypeVar("OutputT")

MAX_PROBLEMS = 5
"""How many problems of one answer a model is told."""

_FENCED = re.compile(r"\A```[a-zA-Z]*\s(?P<json>.*)```\Z", re.DOTALL)


class NoOutput(Exception):
    """An answer does not have the required type. `problems` say what is wrong, and where."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class OutputReader(Generic[OutputT]):
    """Reads answers of one type: text as it is, every other type as JSON."""

    def __init__(self, output_type: type[OutputT]) -> None:
        self._is_text = output_type is str
        self._adapter: TypeAdapter[OutputT] = TypeAdapter(output_type)
        self.schema: Mapping[str, Any] | None = None if self._is_text else self._adapter.json_schema()
        """The JSON Schema of the answer. None for text."""

    @property
    def instruction(self) -> str:
        """The instruction for the model, because not every provider enforces a schema. Empty for text."""
        return (
            ""
            if self.schema is None
            else f"Your final answer must be only JSON that follows this schema:\n{json.dumps(self.schema)}"
        )

    def read(self, text: str) -> OutputT:
        """Read the answer in `text`, which may be a fenced Markdown block.

        Raises:
            NoOutput: the text does not have the required type.
        """
        if self._is_text:
            return self._adapter.validate_python(text)
        fenced = _FENCED.match(text.strip())
        try:
            return self._adapter.validate_json(fenced["json"] if fenced else text)
        except ValidationError as error:
            raise NoOutput(tuple(_problem(each) for each in error.errors(include_url=False)[:MAX_PROBLEMS])) from error


def _problem(problem: Mapping[str, Any]) -> str:
    place = ".".join(map(str, problem["loc"]))
    return f"{place}: {problem['msg']}" if place else str(problem["msg"])
