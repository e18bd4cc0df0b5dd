"""Rules about the layout of the package that import contracts cannot express."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import toolcrib

SOURCE = Path(__file__).parents[1] / "src" / "toolcrib"

MAY_CALL_SOURCES = ("operations/calling/", "sources/", "testing/")
NO_SOURCES = {"crib", "counter", "session", "self.session", "client", "self.dispatcher", "self.runner", "self.wrapped"}
"""Names whose `call_tool` is not that of a source: callers of `calling/` and its runner, a framework's wrapper of a
toolset, and an MCP client in the demo."""
OWN_METHODS = {("adapters/pydantic_ai/by_hand.py", "super()"), ("agent/session.py", "self")}
"""A toolset of the framework that extends ours, and the operation of a session."""


def calls_of_call_tool(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and node.attr == "call_tool" and isinstance(node.ctx, ast.Load):
            yield ast.unparse(node.value)


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), path


def module_name(name: str) -> str:
    return ".".join(("toolcrib", *name.removesuffix(".py").removesuffix("__init__").strip("/").split("/"))).rstrip(".")


def imports_of(path: Path, known: set[str]) -> set[str]:
    """Return our modules that a module imports, including late imports and imports for type checkers only."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= whole & known or {node.module}
    return found & known


def test_no_module_imports_itself_through_other_modules() -> None:
    paths = {module_name(name): path for name, path in modules()}
    # The root exports names of all packages, only for programs. The methods that serve a crib import the surface.
    graph = {name: imports_of(path, {*paths} - {"toolcrib"}) for name, path in paths.items() if name != "toolcrib"}
    graph["toolcrib.crib.crib"].remove("toolcrib.surfaces.program")
    TopologicalSorter(graph).prepare()  # raises an error that names the cycle


def test_type_checkers_and_programs_find_the_same_public_names() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    (typed,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: node.module or ""
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name  # this form makes the name public for type checkers
    }
    assert imported.keys() | {"__version__"} == set(toolcrib.__all__)
    for name, module in imported.items():
        assert getattr(toolcrib, name) is getattr(import_module(module), name)


def test_only_operations_calling_calls_a_source() -> None:
    callers = {(name, receiver) for name, path in modules() for receiver in calls_of_call_tool(path)}
    assert ("operations/calling/runner.py", "entry.source") in callers
    strangers = {
        (name, receiver)
        for name, receiver in callers
        if not name.startswith(MAY_CALL_SOURCES) and receiver not in NO_SOURCES and (name, receiver) not in OWN_METHODS
    }
    assert strangers == set()


def test_only_operations_calling_fetches_from_a_source() -> None:
    importers, callers = set[str](), set[str]()
    for name, path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "toolcrib.sources.base":
                importers |= {name for alias in node.names if alias.name == "fetch"}
            if isinstance(node, ast.Attribute) and node.attr == "fetch":
                callers.add(name)
    assert "operations/calling/fetching.py" in importers
    assert {name for name in importers | callers if not name.startswith(MAY_CALL_SOURCES)} == set()


def test_every_module_begins_with_a_docstring_of_one_sentence() -> None:
    for name, path in modules():
        docstring = ast.get_docstring(ast.parse(path.read_text()))
        assert docstring, name
        assert docstring.splitlines()[0].endswith((".", "?")), name


def test_no_module_or_folder_has_a_meaningless_name() -> None:
    for name, _ in modules():
        assert not {"utils", "common", "helpers", "manager"} & set(name.removesuffix(".py").split("/")), name
