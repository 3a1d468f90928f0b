"""Runs ag-ui-validate over recorded bodies and live runs; each finding must have an explanation in findings.json.

usage: validate.py [URL...] < BODIES

BODIES has one JSON object per line, {"name", "agent", "body"}: an SSE body and the agent that sent it. Each URL is run
once with the validator's own input, which also checks the live connection. An explanation is for a rule at a type of
event, of some agents or of all. The exit status is 1 if a finding has no explanation, or if an explanation explains
nothing although one of its agents was recorded and it is not marked as rare.
"""

import asyncio
import json
import sys
from pathlib import Path

from ag_ui_validate import ValidatorOptions
from ag_ui_validate.transport import TransportOptions, validate_body, validate_endpoint

FINDINGS = json.loads((Path(__file__).parent / "findings.json").read_text())
LIVE_RUN_MS = 60_000
BODY_SHOWN = 10_000  # characters of a stream with an unexplained finding


def options(recorded: bool) -> TransportOptions:
    return TransportOptions(validator=ValidatorOptions(features=["shared-state"]), recorded=recorded, timeout_ms=LIVE_RUN_MS)


async def chunks(body: str):
    yield body.encode()


async def reports(urls: list[str]):
    for line in sys.stdin:
        recorded = json.loads(line)
        result = await validate_body(chunks(recorded["body"]), "text/event-stream", options(recorded=True))
        yield recorded["name"], recorded["agent"], result, recorded["body"]
    for url in urls:
        yield url, None, await validate_endpoint(url, options(recorded=False)), None


def explains(finding: dict, diagnostic, agent: str | None) -> bool:
    is_of = finding["agents"] is None or agent in finding["agents"]
    return is_of and finding["rule"] == diagnostic.rule and finding["event"] == diagnostic.event_type


async def main(urls: list[str]) -> int:
    streams, unexplained, needed, recorded = 0, [], set(), set()
    async for name, agent, result, body in reports(urls):
        streams += 1
        recorded.add(agent)
        if result.transport_error or result.report.internal_errors:
            unexplained.append(f"{name}: {result.transport_error or result.report.internal_errors}")
        before = len(unexplained)
        for diagnostic in result.report.diagnostics:
            reasons = [n for n, finding in enumerate(FINDINGS) if explains(finding, diagnostic, agent)]
            needed.update(reasons)
            if not reasons:
                unexplained.append(f"{name}: {diagnostic.rule} {diagnostic.severity} at event {diagnostic.event_index} "
                                   f"({diagnostic.event_type}): {diagnostic.message}")
        if body and len(unexplained) > before:
            unexplained.append(f"{name}, as it was sent:\n{body[:BODY_SHOWN]}")
    for n, finding in enumerate(FINDINGS):
        was_recorded = finding["agents"] is None or recorded.intersection(finding["agents"])
        if n not in needed and was_recorded and not finding.get("is_rare"):
            unexplained.append(f"findings.json explains {finding['rule']} at {finding['event']}, which was not found: take it out")
    print(f"of {streams} streams:", *unexplained, sep="\n")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
