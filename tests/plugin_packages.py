"""Packages with plugins, as an installer would install them into a folder."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

PLUGIN = """
    from toolcrib import Plugin, Tool

    class Made(Plugin):
        name = {name!r}
        version = "1"
        description = "Says what it is called."

        def tools(self):
            return [Tool(self.name, "say", "Say the name.")]

        def execute(self, tool_name, arguments, context):
            return self.name
"""


def install(folder: Path, name: str, code: str = PLUGIN, *, value: str = "Made", distribution: str = "") -> None:
    """Write a module `name_module` into `folder`, and the entry point that declares its `value` as plugin `name`."""
    module = f"{name.replace('-', '_').replace('.', '_')}_module"
    distribution = distribution or f"{name}-package"
    info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / f"{module}.py").write_text(dedent(code).format(name=name))
    summary = f"The package of {name}."
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\nSummary: {summary}\n")
    (info / "entry_points.txt").write_text(f"[toolcrib.plugins]\n{name} = {module}:{value}\n")
