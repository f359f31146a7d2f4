"""The attempt as the parent of what OpenLineage's listener says of its Spark session."""

from __future__ import annotations

from collections.abc import Mapping

from ..rules import lineage_runs

LISTENER = "io.openlineage.spark.agent.OpenLineageSparkListener"
_LISTENERS = "spark.extraListeners"
_PARENT = "spark.openlineage.parent"


def parent(
    cluster: str, job_id: str, attempt: int, given: Mapping[str, str], found: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings by which OpenLineage's listener names the attempt as the parent run;
    none if the session does not have that listener, or has a parent already.

    Args:
        given: what the session is started with.
        found: what Spark finds by itself on this host.
    """
    listeners = given.get(_LISTENERS, found.get(_LISTENERS, ""))
    named = any(key.startswith(_PARENT) for key in (*given, *found))
    if named or LISTENER not in map(str.strip, listeners.split(",")):
        return {}
    return {
        f"{_PARENT}JobNamespace": lineage_runs.namespace(cluster),
        f"{_PARENT}JobName": job_id,
        f"{_PARENT}RunId": lineage_runs.run_id(cluster, job_id, attempt),
    }
