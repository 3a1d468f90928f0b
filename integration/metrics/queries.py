"""Sends the queries of the dashboard and of the alert rules to a real Prometheus that scrapes a real gateway."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

INTEGRATION = Path(__file__).resolve().parents[1]
sys.path.append(str(INTEGRATION))

from ports import free_port

PACKAGING = INTEGRATION.parent / "packaging"
DASHBOARD = PACKAGING / "grafana" / "threadway.json"
RULES = PACKAGING / "prometheus" / "threadway.rules.yml"
TESTS = PACKAGING / "prometheus" / "threadway.test.yml"
PATIENCE_SECONDS = 30.0
# A status has a series only after the first such response: here none is 5xx. The label itself exists.
STATUS_CLASSES = {"1xx", "2xx", "3xx", "4xx", "5xx"}
OF_PROMETHEUS = {"instance", "job", "le", "__name__"}  # labels that no gateway has to say


def of_dashboard() -> dict[str, str]:
    """The queries of each panel, by its title, with Grafana's variables replaced as Grafana does."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = {}
    for panel in panels:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
            assert "$" not in query, f"{panel['title']}: {query} has a variable that is not known"
            found[f"{panel['title']}, {target['refId']}"] = query
    assert len(found) >= 25, found
    return found


def unknown_names(query: str, samples: dict) -> list[str]:
    """The metrics and labels of a query that no sample has. A sample is identified by its name and its labels."""
    series = {}
    for name, *labels in samples:
        series.setdefault(name, []).append(dict(labels))
    unknown, grouped = [], set()
    for name, matchers in re.findall(r"\b(threadway_\w+)(?:\{([^}]*)\})?", query):
        if name not in series:
            unknown.append(name)
            continue
        grouped |= {label for labels in series[name] for label in labels}
        for label, values in re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"', matchers):
            if label in OF_PROMETHEUS:
                continue
            for value in values.split("|"):
                if label == "status" and label in grouped and value in STATUS_CLASSES:
                    continue
                if not any(labels.get(label) == value for labels in series[name]):
                    unknown.append(f'{name}{{{label}="{value}"}}')
    for labels in re.findall(r"\bby\s*\(([^)]*)\)", query):
        unknown += [f"by ({label})" for label in map(str.strip, labels.split(",")) if label not in grouped | OF_PROMETHEUS]
    return unknown


def check_the_check() -> None:
    samples = {("threadway_a_total", ("kind", "x")): 1.0}
    assert unknown_names('sum by (kind) (rate(threadway_a_total{kind="x",instance=~".*"}[1m]))', samples) == []
    assert unknown_names('threadway_b', samples) == ["threadway_b"]
    assert unknown_names('threadway_a_total{kind=~"x|y"}', samples) == ['threadway_a_total{kind="y"}']
    assert unknown_names('sum by (sort) (threadway_a_total)', samples) == ["by (sort)"]


def promtool(*arguments: str) -> None:
    done = subprocess.run([os.environ["PROMTOOL"], *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def ask(prometheus: str, path: str, **query: str) -> dict:
    url = f"{prometheus}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return json.load(response)
    except urllib.error.HTTPError as refused:
        raise AssertionError(f"{query}: {refused.read().decode()}") from None


def waited_for(what: str, is_there) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if is_there():
                return
        except (urllib.error.URLError, ConnectionError):
            pass
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.1)


def check(admin: str, samples: dict) -> int:
    """Checks and sends all queries; returns their number."""
    check_the_check()
    promtool("check", "rules", str(RULES))
    promtool("test", "rules", str(TESTS))
    with tempfile.TemporaryDirectory() as folder:
        target = admin.removeprefix("http://")
        config = {"global": {"scrape_interval": "500ms", "evaluation_interval": "1s"}, "rule_files": [str(RULES)],
                  "scrape_configs": [{"job_name": "threadway", "static_configs": [{"targets": [target]}]}]}
        Path(folder, "prometheus.yml").write_text(json.dumps(config))
        url = f"127.0.0.1:{free_port()}"
        with Path(folder, "log").open("w") as log:
            process = subprocess.Popen([os.environ["PROMETHEUS"], f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                                        f"--web.listen-address={url}"], stdout=log, stderr=log)
        try:
            return asked(f"http://{url}", samples)
        except AssertionError:
            print(Path(folder, "log").read_text()[-4000:])
            raise
        finally:
            process.terminate()
            process.wait(15)


def asked(prometheus: str, samples: dict) -> int:
    waited_for("Prometheus", lambda: urllib.request.urlopen(f"{prometheus}/-/ready", timeout=5).status == 200)
    scrapes = lambda: ask(prometheus, "query", query='count_over_time(up{job="threadway"}[1m]) >= 3 and up{job="threadway"} == 1')
    waited_for("the third scrape", lambda: scrapes()["data"]["result"])
    rules = lambda: [rule for group in ask(prometheus, "rules")["data"]["groups"] for rule in group["rules"]]
    waited_for("the evaluation of the rules", lambda: rules() and all(rule["health"] == "ok" for rule in rules()))
    alerts = {f"alert {rule['name']}": rule["query"] for rule in rules()}
    assert len(alerts) >= 7, alerts
    firing = [rule["name"] for rule in rules() if rule["state"] != "inactive"]
    assert not firing, f"a gateway that is well raises {firing}"
    queries = of_dashboard()
    for place, query in (queries | alerts).items():
        unknown = unknown_names(query, samples)
        assert not unknown, f"{place}: {query} names {unknown}, which the gateway does not"
        result = ask(prometheus, "query", query=query)["data"]["result"]
        # An alert that does not fire has an empty result; a panel has at least one line.
        assert result or place in alerts, f"{place}: {query} has no answer"
    return len(queries) + len(alerts)
