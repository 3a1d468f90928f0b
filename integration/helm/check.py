"""Checks the Helm chart: Helm lints and renders it, Kubernetes' schemas validate it, and the gateway reads its configuration.

Needs DEMO_URL, the scripted LangGraph server, and the gateway's binary in THREADWAY_BIN.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import helm_python as helm
import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "packaging" / "helm" / "threadway"
KUBERNETES = "1.37"
FEW = {"image": {"repository": "registry.example.org/threadway"}}
ALL = FEW | {
    "secret": {"THREADWAY_UPSTREAM_API_KEY": "lsv2_\"quoted\": #"},
    "metrics": {"enabled": True, "serviceMonitor": {"enabled": True}, "rules": {"enabled": True}},
    "ingress": {"enabled": True, "tlsSecret": "chat-tls"},
    "autoscaling": {"enabled": True},
    "auditVolume": {"enabled": True},
    "podAnnotations": {"a": "b"}, "podLabels": {"c": "d"}, "nodeSelector": {"e": "f"},
    "imagePullSecrets": [{"name": "pull"}],
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
}
FOREIGN = {"ServiceMonitor", "PrometheusRule"}  # kinds of the Prometheus operator: Kubernetes has no schema of theirs


def rendered(values: dict) -> dict[str, dict]:
    """The rendered objects, by kind and by the end of their name."""
    with helm.Chart.load(str(CHART)) as chart:
        chart.validate_schema(values)
        manifests = chart.render(values, name="chat", namespace="prod")
    objects = {}
    for file, text in manifests.items():
        if not file.endswith(".yaml"):
            continue
        for manifest in filter(None, yaml.safe_load_all(text)):
            kind, name = manifest["kind"], manifest["metadata"]["name"]
            assert name.startswith("chat-threadway"), name
            if kind not in FOREIGN:
                kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
            key = kind + name.removeprefix("chat-threadway")
            assert key not in objects, f"{key} is there twice"
            objects[key] = manifest
    return objects


def refused(values: dict, why: str) -> None:
    try:
        rendered(values)
    except Exception as error:
        assert why in str(error), f"{error} does not say {why}"
    else:
        raise AssertionError(f"{values} are rendered")


def read(config: str) -> subprocess.CompletedProcess:
    """The result of `threadway check` for a configuration."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(config)
        file.flush()
        return subprocess.run([os.environ["THREADWAY_BIN"], "check", "--config", file.name], capture_output=True, text=True, env={})


def check_deployment(objects: dict, replicas: int | None) -> dict:
    deployment = objects["Deployment"]["spec"]
    assert deployment.get("replicas") == replicas, deployment.get("replicas")
    pod = deployment["template"]["spec"]
    container = pod["containers"][0]
    probes = [container[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe")]
    assert probes == ["/readyz", "/healthz"], probes
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not container["securityContext"]["allowPrivilegeEscalation"] and not pod["automountServiceAccountToken"]
    # The pause, 10 s for streams to end, 5 s for the last traces.
    assert pod["terminationGracePeriodSeconds"] >= container["lifecycle"]["preStop"]["sleep"]["seconds"] + 15
    labels = deployment["template"]["metadata"]["labels"]
    for kind, selector in [("Service", "selector"), ("PodDisruptionBudget", "selector")]:
        chosen = objects[kind]["spec"][selector]
        chosen = chosen.get("matchLabels", chosen)
        assert chosen.items() <= labels.items(), f"{kind} chooses {chosen}, not {labels}"
    known = subprocess.run([os.environ["THREADWAY_BIN"], "serve", "--help"], capture_output=True, text=True, env={}).stdout
    for variable in container["env"]:
        assert re.search(rf"\b{variable['name']}\b", known), f"{variable['name']} is no variable of the gateway"
    return container


def main() -> int:
    findings = helm.lint(str(CHART))
    # Severity 1 is advice: an icon.
    worse = [message for message in findings["messages"] if message["severity"] > 1]
    assert findings["total_charts_linted"] == 1 and not worse and not findings["errors"], findings
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    assert chart["version"] == chart["appVersion"] == version, f"the chart is of {chart['appVersion']}, the gateway of {version}"
    rules = ROOT / "packaging" / "prometheus" / "threadway.rules.yml"
    assert (CHART / "files" / rules.name).read_text() == rules.read_text(), f"copy {rules} to {CHART}/files"

    few, every = rendered(FEW), rendered(ALL)
    assert sorted(few) == ["ConfigMap", "Deployment", "PodDisruptionBudget", "Service"], sorted(few)
    assert sorted(every.keys() - few.keys()) == ["HorizontalPodAutoscaler", "Ingress", "PrometheusRule", "Secret", "Service-metrics", "ServiceMonitor"]
    container = check_deployment(few, 2)
    assert container["image"] == f"registry.example.org/threadway:{version}", container["image"]
    assert "INSECURE" not in str(few) and "envFrom" not in container
    # The admin listener weakens no check of the gateway's callers.
    assert "THREADWAY_INSECURE" not in str(every) and "THREADWAY_ADMIN_INSECURE" in str(every["Deployment"])
    container = check_deployment(every, None)
    assert container["envFrom"] == [{"secretRef": {"name": "chat-threadway"}}], container["envFrom"]
    assert every["Secret"]["stringData"] == ALL["secret"]
    assert every["Ingress"]["metadata"]["annotations"]["nginx.ingress.kubernetes.io/proxy-buffering"] == "off"
    assert every["PrometheusRule"]["spec"] == yaml.safe_load(rules.read_text())
    checksum = lambda objects: objects["Deployment"]["spec"]["template"]["metadata"]["annotations"]["checksum/secret"]
    assert checksum(few) != checksum(every), "a secret that changes restarts no pod"
    own = rendered(FEW | {"existingSecret": "mine"})
    assert "Secret" not in own and own["Deployment"]["spec"]["template"]["spec"]["containers"][0]["envFrom"][0]["secretRef"]["name"] == "mine"

    refused({}, "image.repository")
    refused(FEW | {"replica": 3}, "replica")
    refused(FEW | {"secret": {"PASSWORD": "x"}}, "PASSWORD")

    # The chart's own configuration is valid; the only error is that the server does not exist here.
    judged = read(few["ConfigMap"]["data"]["config.toml"])
    assert judged.returncode == 1 and "expected" not in judged.stderr, judged
    config = f'watch_config = true\n[upstream]\nurl = "{os.environ["DEMO_URL"]}"\n'
    judged = read(rendered(FEW | {"config": config})["ConfigMap"]["data"]["config.toml"])
    assert judged.returncode == 0, judged
    print(f"{len(few)} and {len(every)} objects")
    return 0


if __name__ == "__main__":
    sys.exit(main())
