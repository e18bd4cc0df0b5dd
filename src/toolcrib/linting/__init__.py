"""What is wrong with definitions of tools, as values: which rules there are, and what each finds."""

from toolcrib.linting.definition import Limits
from toolcrib.linting.findings import Finding, Level, Rule
from toolcrib.linting.linter import lint_tools
from toolcrib.linting.rules import RULES

__all__ = ["RULES", "Finding", "Level", "Limits", "Rule", "lint_tools"]
