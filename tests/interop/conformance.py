"""The published conformance suite against the gateway, compared with the known failures in docs/conformance.md.

`python -m tests.interop.conformance` prints one JSON object. It reports unexpected results on stderr and exits with 1.
The suite runs against the fixture server alone first: a failure there is not caused by the gateway.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from tests.interop.launching import ROOT, fixture_server, from_npm, http_fixture, http_gateway, node
from tests.servers.launching import write_config

PAGE = ROOT / "docs" / "conformance.md"

REVISIONS = ("2025-11-25", "2026-07-28")

CLIENT = "client"
"""The place of the scenarios for clients, in which `oauth_client.py` signs in to servers of the suite."""

CLIENT_REVISIONS = ("2025-03-26", "extension", *REVISIONS)
"""The revisions of these scenarios. Each runs in its newest one; those of extensions belong to none."""

OUTCOMES = ("SUCCESS", "SKIPPED", "WARNING", "FAILURE")
"""From good to bad. A check that is reported several times counts with its worst outcome. `INFO` is not a check."""

ABSENT = "ABSENT"
"""The outcome of a check that was not reported, although the fixture server alone passes it."""


@dataclass(frozen=True, order=True)
class Check:
    where: str
    """One of `PLACES`, or `CLIENT`."""
    revision: str
    scenario: str
    name: str


@dataclass(frozen=True)
class Verdict:
    outcome: str
    message: str = ""


Results = Mapping[Check, Verdict]


@contextmanager
def behind_the_gateway(*words: str) -> Generator[str]:
    """Yield the address of a gateway that exposes everything of the fixture server, which runs over stdio."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"sources": {"fixture": {"plain_names": True}}}
        config = write_config(Path(folder) / "mcp.json", toolcrib=settings, fixture=fixture_server(*words))
        with http_gateway(config, "--operations", "all") as url:
            yield url


PLACES: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "fixture": http_fixture,
    "gateway": behind_the_gateway,
    "gateway, older server": lambda: behind_the_gateway("--era", "legacy"),
}
"""The targets of the suite. The server behind the gateway speaks both eras, or only the older one."""


def suite(*words: str) -> subprocess.CompletedProcess[str]:
    program = from_npm("conformance", "dist", "index.js")
    return subprocess.run([node(), program, *words], capture_output=True, text=True, timeout=600, check=False)


def scenarios(revision: str) -> set[str]:
    """Return the names of the server scenarios for a revision. Scenarios for extensions belong to no revision."""
    listed = re.findall(r"^ +- (\S+) \[([^]]*)\]", suite("list", "--server").stdout, re.MULTILINE)
    return {name for name, revisions in listed if revision in revisions.split(",")}


def run(where: str, revision: str, url: str) -> dict[Check, Verdict]:
    """Return every check of every scenario of a revision.

    Raises:
        RuntimeError: the suite did not run all of them.
    """
    with tempfile.TemporaryDirectory() as folder:
        done = suite("server", "--url", url, "--suite", "all", "--spec-version", revision, "--output-dir", folder)
        reports = {
            re.sub(r"^server-|-\d{4}-\d\d-\d\dT[\dZ-]+$", "", report.parent.name): report
            for report in Path(folder).glob("*/checks.json")
        }
        if lost := scenarios(revision) - reports.keys():
            raise RuntimeError(
                f"{where}, {revision}: no report of {', '.join(sorted(lost))}\n{done.stdout}{done.stderr}"
            )
        return {
            Check(where, revision, scenario, name): verdict
            for scenario, report in sorted(reports.items())
            for name, verdict in worst(json.loads(report.read_text(encoding="utf-8"))).items()
        }


def client_scenarios() -> dict[str, str]:
    """Return the scenarios in which a client signs in, by name, each with the newest revision that has it."""
    listed = re.findall(r"^ +- (auth/\S+) \[([^]]*)\]", suite("list", "--client").stdout, re.MULTILINE)
    return {name: revisions.split(",")[-1] for name, revisions in listed}


def run_client(scenario: str, revision: str) -> dict[Check, Verdict]:
    """Return every check of a scenario in which Toolcrib is the client.

    Raises:
        RuntimeError: the suite did not run it.
    """
    version = ("--spec-version", revision) if revision != "extension" else ()
    with tempfile.TemporaryDirectory() as folder:
        command = f"{sys.executable} -m tests.interop.oauth_client"
        done = suite("client", "--command", command, "--scenario", scenario, *version, "--output-dir", folder)
        report = next(Path(folder).rglob("checks.json"), None)
        if report is None:
            raise RuntimeError(f"no report of {scenario}\n{done.stdout}{done.stderr}")
        checks = worst(json.loads(report.read_text(encoding="utf-8")))
        return {Check(CLIENT, revision, scenario, name): verdict for name, verdict in checks.items()}


def worst(reported: Iterable[Mapping[str, Any]]) -> dict[str, Verdict]:
    """Return the verdict on each check of a scenario."""
    verdicts: dict[str, Verdict] = {}
    for check in reported:
        verdict = Verdict(check["status"], check.get("errorMessage") or "")
        if verdict.outcome not in OUTCOMES:
            continue
        known = verdicts.setdefault(check["id"], verdict)
        if OUTCOMES.index(verdict.outcome) > OUTCOMES.index(known.outcome):
            verdicts[check["id"]] = verdict
    return verdicts


def with_absent(results: Results, alone: Results) -> dict[Check, Verdict]:
    """Return `results` and an absent verdict for each check that passed in `alone` (the fixture server) only."""
    places = {(check.where, check.revision) for check in results}
    missing = {
        check: Verdict(ABSENT)
        for where, revision in places
        if where != CLIENT
        for known, verdict in alone.items()
        if verdict.outcome == "SUCCESS" and known.revision == revision
        if (check := Check(where, revision, known.scenario, known.name)) not in results
    }
    return {**results, **missing}


def expected_failures(page: str) -> dict[Check, str]:
    """Return the outcome of every check that the page lists as not passed."""
    found: dict[Check, str] = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) < 5 or cells[0] not in CLIENT_REVISIONS:
            continue
        revision, scenario, name, outcome, where, *_ = (cell.strip("`") for cell in cells)
        for place in where.split(";"):
            if place.strip() not in (*PLACES, CLIENT):
                raise ValueError(f"{place.strip()!r} is none of {', '.join((*PLACES, CLIENT))}: {line}")
            found[Check(place.strip(), revision, scenario, name)] = outcome
    return found


def surprises(results: Results, expected: Mapping[Check, str]) -> list[str]:
    """Return one line for each check whose outcome differs from the page. Only targets that were run count."""
    run_here = {(check.where, check.revision) for check in results}
    lines: list[str] = []
    for check in sorted({*results, *expected}):
        if (check.where, check.revision) not in run_here:
            continue
        verdict = results.get(check, Verdict(ABSENT))
        if verdict.outcome != (said := expected.get(check, "SUCCESS")):
            told = f" ({verdict.message})" if verdict.message else ""
            what = f"{check.scenario}: {check.name}"
            lines.append(f"{check.where}, {check.revision}: {what} is {verdict.outcome}, not {said}{told}")
    return lines


def summary(results: Results) -> list[dict[str, Any]]:
    """Return by target and revision: the number of passed checks, and all other checks with their messages."""
    runs: dict[tuple[str, str], dict[str, Any]] = {}
    for check, verdict in results.items():
        fresh: dict[str, Any] = {"where": check.where, "revision": check.revision, "passed": 0, "others": []}
        told = runs.setdefault((check.where, check.revision), fresh)
        if verdict.outcome == "SUCCESS":
            told["passed"] += 1
        else:
            told["others"].append({"scenario": check.scenario, "check": check.name, **asdict(verdict)})
    return list(runs.values())


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--where", action="append", choices=(*PLACES, CLIENT), help="run here alone; repeatable")
    places = cast("list[str]", parser.parse_args(words).where or [*PLACES, CLIENT])
    results: dict[Check, Verdict] = {}
    if CLIENT in places:
        with ThreadPoolExecutor(2) as pool:
            known = client_scenarios()
            for found in pool.map(run_client, known, known.values()):
                results |= found
    for where in (each for each in places if each != CLIENT):
        with PLACES[where]() as url:
            for revision in REVISIONS:
                results |= run(where, revision, url)
    alone = {check: verdict for check, verdict in results.items() if check.where == "fixture"}
    results = with_absent(results, alone)
    told = surprises(results, expected_failures(PAGE.read_text(encoding="utf-8")))
    report = summary(results)
    print(json.dumps({"runs": report, "unexpected": told}, indent=1))
    for line in told:
        print(line, file=sys.stderr)
    for part in report:
        print(
            f"{part['where']}, {part['revision']}: {part['passed']} passed, {len(part['others'])} not", file=sys.stderr
        )
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
