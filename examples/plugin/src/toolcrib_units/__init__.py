"""A plugin with tools that convert units of measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from toolcrib import CallContext, Plugin, Tool, ToolAnnotations, ToolExample, ToolFailed, ToolMetadata

UNITS: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "length": {"m": (1, 0), "km": (1000, 0), "mi": (1609.344, 0), "ft": (0.3048, 0)},
    "mass": {"kg": (1, 0), "g": (0.001, 0), "lb": (0.45359237, 0)},
    "temperature": {"K": (1, 0), "C": (1, 273.15), "F": (5 / 9, 459.67 * 5 / 9)},
}
"""The units by dimension. Each has the factor and the offset that convert it to the first unit of its dimension."""

READS = ToolAnnotations(read_only=True, destructive=False, idempotent=True, open_world=False)


class Units(Plugin):
    """Converts between units of one dimension."""

    name = "units"
    version = "1.2.0"
    description = "Converts between units of length, mass and temperature."

    def tools(self) -> Sequence[Tool]:
        unit = {"type": "string", "enum": [unit for units in UNITS.values() for unit in units]}
        return [
            Tool(
                self.name,
                "convert",
                "Convert a quantity from one unit to another of the same dimension.",
                input_schema={
                    "type": "object",
                    "properties": {"value": {"type": "number"}, "unit": unit, "to": unit},
                    "required": ["value", "unit", "to"],
                },
                output_schema={"type": "object", "properties": {"value": {"type": "number"}, "unit": unit}},
                annotations=READS,
                metadata=ToolMetadata(
                    tags=("units", "measurement"),
                    usage_hint="For quantities with a unit. Not for currencies, whose rates change.",
                    examples=(
                        ToolExample("Miles to kilometres", {"value": 26.2, "unit": "mi", "to": "km"}, "42.16 km"),
                        ToolExample("Body temperature", {"value": 98.6, "unit": "F", "to": "C"}, "37 C"),
                    ),
                    intents=("how many miles is this", "how hot is it in Fahrenheit"),
                ),
            ),
            Tool(
                self.name,
                "list_units",
                "List the units that can be converted, by dimension.",
                input_schema={"type": "object", "properties": {"dimension": {"enum": [*UNITS]}}},
                annotations=READS,
                metadata=ToolMetadata(tags=("units",), examples=(ToolExample("All of mass", {"dimension": "mass"}),)),
            ),
        ]

    def execute(self, tool_name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        if tool_name == "convert":
            return convert(**arguments)
        wanted = arguments.get("dimension")
        return {dimension: [*units] for dimension, units in UNITS.items() if wanted in {None, dimension}}


def convert(value: float, unit: str, to: str) -> Mapping[str, Any]:
    for units in UNITS.values():
        if unit in units and to in units:
            (factor, offset), (to_factor, to_offset) = units[unit], units[to]
            return {"value": round((value * factor + offset - to_offset) / to_factor, 6), "unit": to}
    raise ToolFailed(f"`{unit}` and `{to}` measure different things.")
