"""Checks tool definitions for problems: the rules, and the findings of each."""

from toolcrib.definitions.lint.definition import Limits
from toolcrib.definitions.lint.findings import Finding, Level, Rule
from toolcrib.definitions.lint.linter import lint_tools
from toolcrib.definitions.lint.rules import RULES

__all__ = ["RULES", "Finding", "Level", "Limits", "Rule", "lint_tools"]
