"""The rules: promtool finds nothing, each alert fires for what it is for and is silent for a
cluster that is well, and every metric in them is one that masters have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from jrs.recovery.health.facts import MasterHealth
from jrs.recovery.health.metrics import exposition
from tests.deploy.found import KIT, ROOT, output, tool

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


def test_promtool_finds_nothing() -> None:
    """Neither in the rules nor in the configuration, whose rules are those."""
    assert "SUCCESS" in output([promtool(), "check", "rules", RULES])
    assert "1 rule files found" in output([promtool(), "check", "config", CONFIG])


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
