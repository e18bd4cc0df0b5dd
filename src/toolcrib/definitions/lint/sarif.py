"""Writes findings as SARIF, which code hosts and editors show next to the lines that they are about.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) 2.1.0, with the additional requirements of GitHub
code scanning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from toolcrib.definitions.lint.findings import Finding, LintRule
from toolcrib.definitions.lint.lint_rules import RULES
from toolcrib.version import VERSION

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

ROOT = "SRCROOT"
"""The base of relative paths: the folder in which the log is read."""


def sarif_log(findings: Iterable[Finding], root: Path) -> dict[str, Any]:
    """Return one SARIF run of all rules. Files below `root` are relative to it, so that the log works on other
    machines."""
    driver = {"name": "toolcrib lint", "semanticVersion": VERSION, "rules": [_rule(rule) for rule in RULES.values()]}
    positions = {rule_id: position for position, rule_id in enumerate(RULES)}
    results = [_result(finding, positions[finding.rule.id], root) for finding in findings]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }


def _rule(rule: LintRule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.id.split("-")),
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": f"{rule.title} {rule.help}"},
        "help": {"text": rule.help, "markdown": rule.help},
        "defaultConfiguration": {"level": rule.level.value},
        "properties": {"tags": ["tools"]},
    }


def _result(finding: Finding, position: int, root: Path) -> dict[str, Any]:
    problem = finding.problem
    result: dict[str, Any] = {
        "ruleId": finding.rule.id,
        "ruleIndex": position,
        "level": finding.level.value,
        "message": {"text": f"{finding.where}: {problem.text}. {problem.change}."},
        "locations": [_location(finding, place, root) for place in problem.places or ("",)],
        "partialFingerprints": {"toolcrib/v1": _fingerprint(finding)},
    }
    if problem.related:
        result["relatedLocations"] = [
            {"id": number, "message": {"text": tool_id}, "logicalLocations": [_logical(tool_id)]}
            for number, tool_id in enumerate(problem.related, start=1)
        ]
    return result


def _location(finding: Finding, place: str, root: Path) -> dict[str, Any]:
    location: dict[str, Any] = {"logicalLocations": [_logical(finding.where, place)]}
    if finding.file is not None:
        physical: dict[str, Any] = {"artifactLocation": _artifact(finding.file, root)}
        if finding.line is not None:
            physical["region"] = {"startLine": finding.line}
        location["physicalLocation"] = physical
    return location


def _logical(where: str, place: str = "") -> dict[str, str]:
    """Describe a tool, or a part of its definition."""
    if not place:
        return {"name": where, "fullyQualifiedName": where, "kind": "function"}
    return {"name": place, "fullyQualifiedName": f"{where}{place}", "kind": "member"}


def _artifact(file: Path, root: Path) -> dict[str, str]:
    absolute, above = file.absolute(), root.absolute()
    if absolute.is_relative_to(above):
        # Quoted as a part of a URL: otherwise `tools#1.json` would end at the `#`.
        return {"uri": quote(absolute.relative_to(above).as_posix()), "uriBaseId": ROOT}
    return {"uri": absolute.as_uri()}


def _fingerprint(finding: Finding) -> str:
    """A hash that stays the same while the same rule finds something in the same place, even if the message changes."""
    told = "\0".join((finding.rule.id, finding.where, *finding.problem.places, "", *finding.problem.related))
    return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:32]
