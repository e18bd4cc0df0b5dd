"""Finds the tests that are marked with requirements, by reading their syntax."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1]

HOLDS = "pytest.mark.holds"
_NEVER_RUN = ("pytest.mark.skip", "pytest.mark.xfail", "pytest.skip")


@dataclass(frozen=True, slots=True)
class Held:
    """A requirement, and a test that is marked with it."""

    requirement: str
    test: str
    """The file and name of the test."""
    runs: bool
    """Whether the test is never skipped unconditionally; `skipif` is allowed."""


def marks() -> list[Held]:
    """Return the marks of all tests."""
    return [
        held
        for path in sorted(TESTS.rglob("test_*.py"))
        if "node_modules" not in path.parts
        for held in read(path.read_text(), path.relative_to(TESTS).as_posix())
    ]


def read(source: str, name: str) -> Iterator[Held]:
    """Return the marks of the file `name`.

    Raises:
        ValueError: a mark is not on a test, or its argument cannot be read.
    """
    module = ast.parse(source)
    module_runs = not any(
        _name(node).startswith(_NEVER_RUN)
        for statement in module.body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark"
        for node in ast.walk(statement.value)
    )
    seen = 0
    for test in module.body:
        if not isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef) or not test.name.startswith("test_"):
            continue
        runs = module_runs and not any(_name(part).startswith(_NEVER_RUN) for part in _certain(test))
        for decorator in test.decorator_list:
            if not isinstance(decorator, ast.Call) or _name(decorator.func) != HOLDS:
                continue
            seen += 1
            for argument in decorator.args:
                requirement = str(ast.literal_eval(argument))
                yield Held(requirement, f"{name}::{test.name}", runs)
    if seen != sum(_name(node) == HOLDS for node in ast.walk(module) if isinstance(node, ast.Attribute)):
        raise ValueError(f"{name}: `holds` marks something that is no test")


def _certain(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Iterate over the decorators of a test and the calls that it always makes."""
    for decorator in test.decorator_list:
        yield decorator.func if isinstance(decorator, ast.Call) else decorator
    for statement in test.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            yield statement.value.func


def _name(node: ast.AST) -> str:
    """Return the dotted name of an attribute; `skipif` does not count as `skip`."""
    return ast.unparse(node).replace("skipif", "maybe") if isinstance(node, ast.Attribute) else ""
