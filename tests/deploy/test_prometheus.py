"""The rules: promtool finds nothing, each alert fires for what it is for and is silent for a
cluster that is well, and every metric in them is one that masters have."""

from __future__ import annotations

import json
import re
import secrets
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from jrs.recovery.health.facts import MasterHealth
from jrs.recovery.health.metrics import exposition
from jrs.testing.servers.ports import Ports
from tests.deploy.found import KIT, ROOT, counted, output, running, status, tool
from tests.deploy.units import API, running_api, setting
from tests.support import until

RULES = KIT / "prometheus" / "jrs.rules.yml"
CONFIG = KIT / "prometheus" / "prometheus.yml"
CASES = Path(__file__).parent / "rules.test.yml"
OF_PROMETHEUS = {"job", "instance", "le"}


def promtool() -> str:
    return tool("promtool", "apt-get install prometheus")


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


ALERTS = [rule["alert"] for rule in rules() if "alert" in rule]


def used(expression: str) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """Return the metrics of an expression, each with the labels that it asks for by value."""
    found = set()
    for name, selector in re.findall(r"(?<![\w:])(jrs_\w+)(?:\{([^}]*)\})?", expression):
        labels = re.findall(r'(\w+)="([^"]*)"', selector)
        found.add((name, tuple(one for one in labels if one[0] not in OF_PROMETHEUS)))
    return found


def exported() -> str:
    """Return what a master exports, from its start."""
    return exposition(MasterHealth().facts())


OF_PREFIX = "jrs_prefix_finished_timestamp_seconds"
"""What `jrs serve` exports of jobs whose ids begin alike; see tests/sidecar."""


def is_exported(name: str, labels: tuple[tuple[str, str], ...]) -> bool:
    return name == OF_PREFIX or any(
        re.match(rf"{name}[{{ ]", line) and all(f'{key}="{value}"' in line for key, value in labels)
        for line in exported().splitlines()
    )


def configured(folder: Path) -> dict[str, Any]:
    """Return the configuration, with files of a test in the place of its own."""
    text = CONFIG.read_text().replace("/etc/prometheus/jrs-api", f"{folder}/tls")
    text = text.replace("/etc/prometheus", str(folder)).replace("[jrs.rules.yml]", f"[{RULES}]")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def test_promtool_finds_nothing(tmp_path: Path) -> None:
    """Neither in the rules nor in the configuration, whose rules are those."""
    assert "SUCCESS" in output([promtool(), "check", "rules", RULES])
    (tmp_path / "tls").mkdir()
    for name in ("jrs.token", "jrs-ca.pem", "tls/ca.crt", "tls/tls.crt", "tls/tls.key"):
        (tmp_path / name).touch()
    (tmp_path / "config.yml").write_text(json.dumps(configured(tmp_path)))  # JSON is YAML.
    assert "1 rule files found" in output([promtool(), "check", "config", tmp_path / "config.yml"])


def test_the_canary_is_scraped(tmp_path: Path) -> None:
    """A real Prometheus with the settings of the job reaches the API that the unit starts. Only the
    address is another one."""
    program = tool("prometheus", "apt-get install prometheus")
    token, ports = secrets.token_hex(16), Ports()
    own = f"127.0.0.1:{ports.take()}"
    with ExitStack() as stack:
        api = stack.enter_context(running_api(tmp_path, token))
        (tmp_path / "jrs.token").write_text(token)
        (tmp_path / "jrs-ca.pem").write_bytes(api.certificates.ca.read_bytes())
        [job] = (
            job for job in configured(tmp_path)["scrape_configs"] if job["job_name"] == "canary"
        )
        [targets] = job["static_configs"]
        assert targets["targets"] == ["host1:8443"]
        assert setting("ExecStart", API).find(" 0.0.0.0:8443 ") > 0
        targets["targets"] = [f"localhost:{api.port}"]
        job["scrape_interval"] = "1s"
        (tmp_path / "config.yml").write_text(json.dumps({"scrape_configs": [job]}))
        command = [program, f"--config.file={tmp_path}/config.yml"]
        command += [f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address={own}"]
        stack.enter_context(running(command, tmp_path / "prometheus.log", {}, tmp_path))
        until(lambda: status(f"http://{own}/-/ready") == 200, "Prometheus is ready")
        until(lambda: counted(own, 'up{job="canary"} == 1'), "it reaches the API")
        until(lambda: counted(own, OF_PREFIX), "it has the metric of the rule")
    ports.close()


def test_the_api_of_the_pods_is_scraped() -> None:
    """The other job asks for the name and the port of the Service, with a certificate, from the
    namespace that the policy admits."""
    api = {d["kind"]: d for d in yaml.safe_load_all((KIT / "kubernetes" / "api.yaml").read_text())}
    jobs = {job["job_name"]: job for job in configured(Path("/x"))["scrape_configs"]}
    job, meta = jobs["canary-kubernetes"], api["Service"]["metadata"]
    name = f"{meta['name']}.{meta['namespace']}.svc"
    [port] = api["Service"]["spec"]["ports"]
    [pod] = api["Deployment"]["spec"]["template"]["spec"]["containers"]
    [admitted] = api["NetworkPolicy"]["spec"]["ingress"]

    assert job["static_configs"] == [{"targets": [f"{name}:{port['port']}"]}]
    assert f"--allow-host={name}" in pod["args"]
    assert (job["scheme"], set(job["tls_config"])) == (
        "https", {"ca_file", "cert_file", "key_file"},
    )  # fmt: skip
    namespaces = [peer["namespaceSelector"]["matchLabels"] for peer in admitted["from"]]
    assert {"kubernetes.io/metadata.name": "monitoring"} in namespaces


def test_promtool_finds_a_mistake(tmp_path: Path) -> None:
    """The test above can fail."""
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(
        RULES.read_text().replace("sum by (job) (jrs_leader)", "sum by (job (jrs_leader)")
    )
    with pytest.raises(AssertionError, match="unexpected"):
        output([promtool(), "check", "rules", wrong])


def test_each_alert_fires_and_is_silent() -> None:
    """By series of each case, which promtool runs."""
    assert "SUCCESS" in output([promtool(), "test", "rules", CASES])


def test_each_alert_has_its_cases() -> None:
    """One in which it fires, and the quiet cluster, in which it does not."""
    tests = yaml.safe_load(CASES.read_text())["tests"]
    cases = [(case, bool(case["exp_alerts"])) for test in tests for case in test["alert_rule_test"]]

    assert {case["alertname"] for case, fires in cases if fires} == set(ALERTS)
    assert {case["alertname"] for case, fires in cases if not fires} == set(ALERTS)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.get("alert", rule.get("record")))
def test_its_metrics_exist(rule: dict[str, Any]) -> None:
    """Masters export each, with each label and value that is asked for."""
    for name, labels in used(rule["expr"]):
        assert is_exported(name, labels), (name, labels)


@pytest.mark.parametrize("alert", ALERTS)
def test_it_says_what_to_do(alert: str) -> None:
    """The page that an alert names has a heading for it."""
    (rule,) = (rule for rule in rules() if rule.get("alert") == alert)
    page, _, heading = rule["annotations"]["runbook"].partition("#")

    assert heading == alert.lower()
    assert f"\n### {alert}\n" in (ROOT / page).read_text()
    assert rule["labels"]["severity"] in ("page", "ticket")
