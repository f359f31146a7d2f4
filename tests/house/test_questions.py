"""What a stranger asks, and the file that answers it: the tree leads there without a search.

A new room gets a question. If an answer is hard to name, the room or the file has the wrong name.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.test_layers import FLOORS, MODULES, room_of

ROOT = Path(__file__).parents[2]
ANSWERS = {
    "what must a backend guarantee?": "jrs/contract/backend.py",
    "which errors are there, and what may a caller do about each?": "jrs/contract/errors.py",
    "which filesystems may a folder be on?": "jrs/host/filesystems.py",
    "which processes receive the password of a backend?": "jrs/host/credentials.py",
    "how does a record keep the fields of a newer version?": "jrs/records/codec.py",
    "what is stored under which key?": "jrs/records/keys.py",
    "how do writes of many callers share a request?": "backends/shared/group_commit.py",
    "who ends the session of a master that was killed?": "backends/remote/guardian.py",
    "how is a request to ZooKeeper turned into bytes?": "backends/zookeeper/protocol/codec.py",
    "why is a ZooKeeper commit planned again?": "backends/zookeeper/plan.py",
    "what does a line of the log look like?": "backends/file/format/lines.py",
    "how are runs merged into levels?": "backends/file/base/merge.py",
    "which files does a segment consist of?": "backends/file/segments/names.py",
    "how does a process come from one segment to the next?": "backends/file/current_segment.py",
    "which process writes the next base?": "backends/file/compaction.py",
    "why can a late request to etcd not take effect?": "backends/etcd/write_barrier.py",
    "which backend is the shortest example?": "backends/memory.py",
    "why does a job with a result never run again?": "jrs/store/result_store.py",
    "which steps does a stop have?": "jrs/store/stop_transitions.py",
    "how does a reader follow the history of all jobs?": "jrs/store/feed.py",
    "how are many small files put into one object?": "recovery/storage/packed_copies.py",
    "is a job recovered, cleaned up, skipped or held?": "recovery/rules/decision.py",
    "in which order do waiting jobs start?": "recovery/rules/queue.py",
    "what keeps an older attempt from publishing files?": "recovery/files/epoch_folders.py",
    "how is a process of an attempt recognized?": "recovery/processes/marks.py",
    "how is Spark's offset log read?": "recovery/checkpoint_format/offset_log.py",
    "what happens if a restore is interrupted?": "recovery/snapshots/restore.py",
    "in which order are a job's resources removed?": "recovery/cleanup/job_cleanup.py",
    "who runs the command of `--on-result`?": "recovery/cleanup/on_result.py",
    "what may a job's function call?": "recovery/attempt/job.py",
    "what ends an attempt whose master hangs?": "recovery/attempt/watchdog.py",
    "how does `jrs explain` know what the leader would do?": "recovery/inspect/explain.py",
    "what does `/livez` say, and why?": "recovery/health/probes.py",
    "how is a query stopped at a batch boundary?": "recovery/spark/boundary.py",
    "who commits the batches of the sink of jrs?": "recovery/attempt/batch_committer.py",
    "is a damaged checkpoint passed over?": "recovery/leader/recovery_point.py",
    "which jobs does a leader look at, and when?": "recovery/leader/agenda.py",
    "what does the process of an attempt start with?": "recovery/attempt_main.py",
    "what does an attempt know of Spark?": "recovery/attempt/engine.py",
    "what runs `--on-result`, in a process of its own?": "recovery/run_hook.py",
    "what can be done with snapshots from Python?": "recovery/snapshot_catalog.py",
    "what does a master do between two leaderships?": "recovery/master.py",
    "when does `main` of an application begin again?": "recovery/leading_replica.py",
    "what does a replica do while another one leads?": "recovery/standby_replica.py",
    "which stored job may `driver.run` take over?": "recovery/driver_calls.py",
    "what does `jrs.run` take?": "recovery/application.py",
    "what can a program do with one job?": "jrs/client/job.py",
    "how does a program follow what happens to all jobs?": "jrs/client/cluster_history.py",
    "which names are public?": "jrs/__init__.pyi",
    "which routes does the API have?": "jrs/sidecar/routes.py",
    "what is checked before a route sees a request?": "jrs/sidecar/access.py",
    "what must each backend pass?": "jrs/testing/contract/__init__.py",
    "which faults does a chaos test have?": "jrs/testing/chaos/faults.py",
    "how is a history checked for stale reads?": "jrs/testing/chaos/checking/stale_reads.py",
    "which order of steps does a simulation choose?": "jrs/testing/simulation/scheduler.py",
    "how is etcd or ZooKeeper started on this machine for a test?": "jrs/testing/servers/local.py",
    "what does the demo compare?": "jrs/demo/comparison.py",
    "how does `jrs suspend` wait?": "jrs/cli/suspend.py",
    "what does `python -m jrs` start?": "jrs/__main__.py",
}


@pytest.mark.parametrize("question", ANSWERS)
def test_the_answer_is_there(question: str) -> None:
    """Each path exists."""
    assert (ROOT / ANSWERS[question]).is_file()


def test_every_room_has_a_question() -> None:
    """A room that no question leads to is one that a stranger does not find."""
    modules = {str(path.relative_to(ROOT)): name for name, path in MODULES.items()}
    rooms = {room_of(modules[path.removesuffix("i")]) for path in ANSWERS.values()}

    assert {room for floor in FLOORS for room in floor} - rooms == set()


def test_every_part_of_the_tests_kit_has_a_question() -> None:
    """`jrs.testing` is one room with several parts."""
    parts = [path.name for path in (ROOT / "jrs" / "testing").iterdir() if path.is_dir()]

    assert [
        part
        for part in parts
        if part != "__pycache__"
        and not any(path.startswith(f"jrs/testing/{part}/") for path in ANSWERS.values())
    ] == []
