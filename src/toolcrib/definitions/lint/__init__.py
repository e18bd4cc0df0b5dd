"""Checks tool definitions for problems: the rules, and the findings of each."""

from toolcrib.definitions.lint.findings import Finding, Level, LintRule
from toolcrib.definitions.lint.lint_rules import RULES, lint_tools
from toolcrib.definitions.lint.linted_tool import Limits

__all__ = ["RULES", "Finding", "Level", "Limits", "LintRule", "lint_tools"]
