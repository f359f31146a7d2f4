"""OpenLineage's listener of a session names the attempt as the parent run."""

from __future__ import annotations

import pytest

from jrs.recovery.rules.lineage_runs import run_id
from jrs.recovery.spark.lineage import LISTENER, parent

KEY = "spark.extraListeners"
PARENT = {
    "spark.openlineage.parentJobNamespace": "jrs://c",
    "spark.openlineage.parentJobName": "j",
    "spark.openlineage.parentRunId": run_id("c", "j", 2),
}


@pytest.mark.parametrize(
    ("given", "found", "says"),
    [
        ({}, {}, {}),
        ({KEY: "com.example.Other"}, {}, {}),
        ({KEY: LISTENER}, {}, PARENT),
        ({KEY: f"com.example.Other, {LISTENER}"}, {}, PARENT),
        ({}, {KEY: LISTENER}, PARENT),
        ({KEY: ""}, {KEY: LISTENER}, {}),
        ({KEY: LISTENER, "spark.openlineage.parentRunId": "x"}, {}, {}),
        ({KEY: LISTENER}, {"spark.openlineage.parentJobName": "x"}, {}),
    ],
)
def test_the_parent_of_a_session(
    given: dict[str, str], found: dict[str, str], says: dict[str, str]
) -> None:
    """Only where the user has configured the listener, and no parent."""
    assert parent("c", "j", 2, given, found) == says
