"""Checks the admin listener's metrics with Prometheus' own Python parsers: in both formats, before and after some runs.

Then it sends the queries of packaging/grafana and packaging/prometheus to a Prometheus that scrapes the gateway.

Needs PROMETHEUS and PROMTOOL; DEMO_URL, the scripted LangGraph server, and the gateway's binary in THREADWAY_BIN.
"""

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

import queries
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

PATIENCE_SECONDS = 10.0
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
THREAD = "7e11ad3a-0000-4000-8000-0000000000aa"


def get(url: str, **headers: str) -> tuple[str, str]:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=5) as response:
        return response.headers["content-type"], response.read().decode()


def run(gateway: str, graph: str) -> str:
    """The bytes of a run's stream."""
    body = {"threadId": THREAD, "runId": "r1", "protocolVersion": "1.0",
            "messages": [{"id": "m1", "role": "user", "content": "Where is it warm?"}]}
    request = urllib.request.Request(f"{gateway}/agui/agent/{graph}/run", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.read().decode()


def samples(families) -> dict:
    """The samples by name and labels; each family appears once, with a help text and samples of its own name."""
    found, names = {}, set()
    for family in families:
        assert family.name not in names, f"{family.name} is told twice"
        names.add(family.name)
        assert family.name.startswith("threadway_"), family.name
        assert family.documentation, f"{family.name} has no help"
        assert family.type != "unknown", f"{family.name} has no type"
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in found, f"{key} is told twice"
            found[key] = sample.value
    assert len(names) >= 20, names
    return found


def read_open_metrics(admin: str) -> dict:
    kind, text = get(f"{admin}/metrics", accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert kind == OPEN_METRICS, kind
    return samples(openmetrics_parser.text_string_to_metric_families(text))


def read(admin: str) -> dict:
    """Checks that both formats have the same samples. The gateway may add samples between two reads, and never removes one."""
    earlier = read_open_metrics(admin)
    kind, text = get(f"{admin}/metrics")
    assert kind == PROMETHEUS, kind
    old = samples(parser.text_string_to_metric_families(text))
    later = read_open_metrics(admin)
    assert earlier.keys() <= old.keys(), earlier.keys() - old.keys()
    assert old.keys() <= later.keys(), old.keys() - later.keys()
    for key in later:
        for word in (THREAD, "agent/", "m1"):
            assert word not in str(key), f"{key} tells {word}"
    return later


def main() -> int:
    command = [os.environ["THREADWAY_BIN"], "serve", "--upstream", os.environ["DEMO_URL"], "--listen", "127.0.0.1:0",
               "--admin-listen", "127.0.0.1:0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("THREADWAY_")}
    gateway = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        client = admin = None
        while not (client and admin):
            line = gateway.stderr.readline()
            assert line, "the gateway has ended"
            url = re.search(r"http://[\d.]+:\d+", line)
            if url and "admin" in line:
                admin = url[0]
            elif url and "listening on" in line:
                client = url[0]
        before = read(admin)
        assert "RUN_FINISHED" in run(client, "agent")
        assert "RUN_ERROR" in run(client, "failing")
        try:
            urllib.request.urlopen(f"{client}/metrics", timeout=5)
            raise AssertionError("clients can read /metrics")
        except urllib.error.HTTPError as refused:
            assert refused.code == 404, refused.code
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            after = read(admin)
            key = lambda name, **labels: (f"threadway_{name}", *sorted(labels.items()))
            moved = lambda name, **labels: after.get(key(name, **labels), 0) - before.get(key(name, **labels), 0)
            if moved("runs_ended_total", outcome="finished") and moved("runs_ended_total", outcome="failed"):
                break
            assert time.monotonic() < deadline, "the runs are not counted"
            time.sleep(0.05)
        for name, labels, expected in [
            ("runs_started_total", {"origin": "started"}, 2),
            ("runs_ended_total", {"outcome": "finished"}, 1),
            ("runs_ended_total", {"outcome": "failed"}, 1),
            ("requests_total", {"route": "run", "status": "2xx"}, 2),
            ("stream_bytes_count", {}, 2),
            ("upstream_requests_total", {"operation": "start_run", "outcome": "ok"}, 2),
        ]:
            assert moved(name, **labels) == expected, f"{name} {labels}: {moved(name, **labels)}, not {expected}"
        assert moved("added_latency_seconds_count") > 2
        print(f"{len(after)} samples, which both parsers read alike")
        print(f"{queries.check(admin, after)} queries, sent to a real Prometheus")
        return 0
    finally:
        gateway.terminate()
        gateway.wait(15)


if __name__ == "__main__":
    sys.exit(main())
