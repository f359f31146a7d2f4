"""Suspects and last words: what a leader's end says of the jobs that ran in its process."""

from __future__ import annotations

import errno
import faulthandler
import json
import os
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from jrs.records.model import AttemptRecord, JobSpec, RunnerKind
from jrs.records.policies import RestartPolicy
from jrs.recovery.leader import suspects
from jrs.recovery.leader.suspects import Probations
from jrs.recovery.processes import last_words
from jrs.recovery.processes.last_words import LastWords, LeaderEnd, Memory
from tests.support import until

POLICY = RestartPolicy(attempts=3, delay=8.0)
SILENT, ORDERLY, FATAL = LeaderEnd(), LeaderEnd(orderly=True), LeaderEnd(fatal="Fatal", detail="at")
RAN = AttemptRecord("job", attempt=2, epoch=4, deaths=1)
ALONE = attrs.evolve(RAN, suspicion=2, on_probation=True)
BAD = Memory("boot", 3)


def after_leader_death(record: AttemptRecord, **ends: LeaderEnd) -> AttemptRecord:
    def end_of(epoch: int) -> LeaderEnd:
        return ends[f"e{epoch}"]

    return suspects.after_leader_death(record, POLICY, end_of, 100.0)


# -- what an end says -----------------------------------------------------------------------------


@pytest.mark.parametrize("record", [RAN, ALONE])
def test_after_an_orderly_end_nothing_changes(record: AttemptRecord) -> None:
    """B2: a leader that resigned or was replaced makes nobody a suspect."""
    assert after_leader_death(record, e4=ORDERLY) == record


@pytest.mark.parametrize("record", [RAN, ALONE])
def test_a_kill_from_outside_is_no_death(record: AttemptRecord) -> None:
    """B2: however often a leader dies without a word, its jobs are suspects and no more."""
    suspicion = max(1, record.suspicion)
    for _ in range(20):
        record = attrs.evolve(after_leader_death(record, e4=SILENT), on_probation=True, unheard=())

    assert record.deaths == 1
    assert record.suspicion == suspicion
    assert record.retry_at == 100.0


def test_only_the_job_that_was_alone_dies_with_its_leader() -> None:
    """B2: a fatal error is a death of the job on probation, with its delay and its traceback; of
    the others it makes suspects."""
    other, alone = after_leader_death(RAN, e4=FATAL), after_leader_death(ALONE, e4=FATAL)

    assert (other.deaths, other.suspicion, other.retry_at) == (1, 2, 100.0)
    assert (alone.deaths, alone.suspicion, alone.retry_at) == (2, 3, 116.0)
    assert not alone.on_probation
    assert alone.failure is not None
    assert (alone.failure.message, alone.failure.detail) == ("its master died with it: Fatal", "at")


@pytest.mark.parametrize(
    ("lasted", "alone_for"), [(0.1, 5.0), (4.0, 10.0), (6.0, 20.0), (29.0, 60.0), (90.0, 5.0)]
)
def test_who_kills_late_is_alone_for_longer(lasted: float, alone_for: float) -> None:
    """B2: a job that has survived its probation dies uncounted, so that lasts longer than the job
    took; one that took too long for any is not waited for, and neither is what ran next to it."""
    started = attrs.evolve(RAN, started_at=50.0)
    late = LeaderEnd(fatal="Fatal", at=50.0 + lasted)
    for ended in (lambda _: late, lambda _: FATAL):
        found = suspects.after_leader_death(started, POLICY, ended, 50.0 + lasted)

        assert suspects.probation(found.suspicion) == alone_for


def test_last_words_that_come_late_count_late() -> None:
    """B2: a process that hangs is replaced before it is dead; what it leaves then is a death once
    the next leader has died, and counts once."""
    first = after_leader_death(ALONE, e4=SILENT)

    assert (first.deaths, first.unheard) == (1, (4,))

    again = attrs.evolve(first, epoch=5, on_probation=True, retry_at=0.0)
    second = after_leader_death(again, e4=FATAL, e5=SILENT)

    assert (second.deaths, second.unheard) == (2, (5,))


def test_only_a_job_that_was_alone_waits_for_a_leader_that_hangs() -> None:
    """B2: its next attempt would come before its death is counted; the others need not wait."""
    hangs = LeaderEnd(hangs=True)

    assert suspects.hangs_alone(ALONE, hangs)
    assert suspects.hangs_alone(ALONE, LeaderEnd(fatal="Fatal", hangs=True))
    assert not suspects.hangs_alone(RAN, hangs)
    assert not suspects.hangs_alone(ALONE, LeaderEnd(orderly=True, hangs=True))

    given_up = after_leader_death(ALONE, e4=hangs)

    assert (given_up.deaths, given_up.unheard) == (1, (4,))


def test_what_is_left_of_a_delay_is_never_more_than_the_policys() -> None:
    """B2: the clocks of two hosts may differ by hours, and the job waits no longer for it."""
    record = attrs.evolve(RAN, retry_at=1000.0)
    left = [suspects.remaining_delay(record, POLICY, now) for now in (0.0, 995.0, 1000.0, 5000.0)]

    assert left == [8.0, 5.0, 0.0, 0.0]


def test_a_suspect_that_can_be_loaded_anywhere_runs_in_a_process() -> None:
    """B2: and is never suspected again; only what the driver's main alone can give stays."""
    any_one = JobSpec("job", "etl:job", runner=RunnerKind.THREAD)
    driven = JobSpec("job", "driver:job", runner=RunnerKind.THREAD)
    found = {
        (spec.entry_point, suspicion): (
            suspects.runner_of(spec, suspicion),
            suspects.is_on_probation(spec, suspicion),
            suspects.ran_in_its_leader(attrs.evolve(RAN, suspicion=suspicion), spec),
        )
        for spec in (any_one, driven)
        for suspicion in (0, 1)
    }

    assert found == {
        ("etl:job", 0): (RunnerKind.THREAD, False, True),
        ("etl:job", 1): (RunnerKind.PROCESS, False, False),
        ("driver:job", 0): (RunnerKind.THREAD, False, True),
        ("driver:job", 1): (RunnerKind.THREAD, True, True),
    }


# -- turns ----------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_without_a_suspect_all_start_at_once() -> None:
    """B2: nothing waits for anything before a leader has died."""
    turns = Probations(1.0, Clock())
    for job_id in "abc":
        assert turns.may_start(job_id, 0)
        turns.enter(job_id, 0)


def test_suspects_start_one_at_a_time() -> None:
    """B2: another one starts when the one before has ended, or has survived its probation and that
    was noted; what has just started is waited for; what is new waits for the suspects."""
    clock = Clock()
    turns = Probations(1.0, clock)
    turns.enter("new", 0)

    assert not turns.may_start("a", 2)  # The other one is as young.

    clock.now = 1.0

    assert turns.may_start("a", 2)
    assert not turns.may_start("newer", 0)  # A suspect waits.

    turns.enter("a", 2)

    assert not turns.may_start("b", 1)
    assert not turns.may_start("newer", 0)

    clock.now = 1.0 + suspects.probation(2)

    assert turns.has_survived("a")
    assert not turns.may_start("b", 1)  # Not before it is noted: else a's death would be b's.

    turns.acquit("a")

    assert not turns.has_survived("a")
    assert turns.may_start("b", 1)

    turns.enter("b", 1)
    turns.leave("b")

    assert turns.may_start("newer", 0)


def test_a_suspect_that_waits_no_more_blocks_nobody() -> None:
    """B2: one that was canceled while it waited leaves the queue."""
    turns = Probations(1.0, Clock())
    turns.enter("a", 1)

    assert not turns.may_start("b", 1)

    turns.leave("a")
    turns.leave("b")

    assert turns.may_start("new", 0)


def test_a_probation_grows_with_the_evidence_and_is_bounded() -> None:
    """B2: those that take long to kill their leader are found out after a few."""
    assert [suspects.probation(n) for n in range(8)] == [0, 1, 5, 10, 20, 40, 60, 60]


# -- last words -----------------------------------------------------------------------------------

TALK = """
import ctypes, os, sys, threading
from pathlib import Path
from jrs.recovery.processes.last_words import LastWords, Memory
words = LastWords(Path(sys.argv[1]), 7)
def attempt():
    with words.attempt("job", 60.0):
        exec(sys.argv[2])
thread = threading.Thread(target=attempt)
thread.start()
thread.join()
words.farewell()
"""


def last_words_of(folder: Path, deed: str) -> LeaderEnd:
    """Return what a process leaves that does this while an attempt runs in it."""
    done = subprocess.run([sys.executable, "-c", TALK, folder, deed], capture_output=True)
    assert b"Error" not in done.stderr, done.stderr
    return last_words.read(folder, 7, "job")


@pytest.mark.parametrize(
    ("deed", "fatal"),
    [
        ("ctypes.string_at(0)", "Fatal Python error: Segmentation fault"),
        ("os._exit(0)", "os._exit(0) was called"),
        ("os.kill(os.getpid(), 9)", ""),
    ],
)
def test_a_fatal_error_leaves_a_word_and_a_kill_none(tmp_path: Path, deed: str, fatal: str) -> None:
    """B2: this tells a job that kills its master from a kill from outside."""
    end = last_words_of(tmp_path, deed)

    assert (end.orderly, end.fatal) == (False, fatal)
    assert ("<string>" in end.detail) == bool(fatal)


def test_an_orderly_end_leaves_a_farewell(tmp_path: Path) -> None:
    """B2: whatever becomes of a child that the job has forked is no news of its master."""
    forks = "os.fork() or os._exit(0)\nos.fork() or ctypes.string_at(0)"

    assert last_words_of(tmp_path, forks) == ORDERLY


def test_a_process_that_has_not_ended_hangs(tmp_path: Path) -> None:
    """B2: whether a leader's last words may still come is known as long as its process lives, and
    not by what it has forked."""
    forks = "os.fork() or os.execvp('cat', ['cat'])"
    deed = f"{forks}\nprint('hangs', flush=True)\nthreading.Event().wait()"
    with subprocess.Popen(
        [sys.executable, "-c", TALK, tmp_path, deed], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"hangs\n"
        assert last_words.read(tmp_path, 7, "job") == LeaderEnd(hangs=True)

        process.kill()
        process.wait()
        until(lambda: last_words.read(tmp_path, 7, "job") == SILENT, "its end is seen")


MANY = 2000
"""Attempts whose lines are longer than what was once read of a file."""


@pytest.mark.parametrize(
    ("deed", "end"),
    [
        ("", ORDERLY),
        ("os.kill(os.getpid(), 9)", SILENT),
        ("ctypes.string_at(0)", LeaderEnd(fatal="Fatal Python error: Segmentation fault")),
    ],
)
def test_what_is_behind_many_attempts_is_read(tmp_path: Path, deed: str, end: LeaderEnd) -> None:
    """B2: however many attempts a leader has run, its end is what it was. What it writes of them
    does not grow with them."""
    many = f"""
for number in range({MANY}):
    with words.attempt(f"{{number:0100}}", 60.0): pass
"""
    found = last_words_of(tmp_path, many + deed)

    assert (found.orderly, found.fatal) == (end.orderly, end.fatal)
    assert (tmp_path / "e7").stat().st_size < 200 * MANY / 2


def test_the_end_behind_a_long_file_is_read(tmp_path: Path) -> None:
    """B2: older versions write a line for each attempt, and more as long as the leader leads."""
    began = "".join(json.dumps({"began": f"{n:0100}"}) + "\n" for n in range(MANY * 2))
    ends = {
        "": SILENT,
        '{"farewell": true}\n': ORDERLY,
        "Fatal Python error: Aborted\n\nat": LeaderEnd(fatal="Fatal Python error: Aborted"),
    }
    for words, end in ends.items():
        (tmp_path / "e7").write_text(began + words)
        found = last_words.read(tmp_path, 7, "job")

        assert (found.orderly, found.fatal) == (end.orderly, end.fatal)


def test_running_attempts_are_kept_when_a_file_is_written_again(tmp_path: Path) -> None:
    """B2: the memory that an attempt began with is known, however many have ended meanwhile."""
    words = LastWords(tmp_path, 7, memory=lambda _: BAD)
    with words.attempt("job", 60.0):
        for number in range(MANY):
            with words.attempt(f"{number:0100}", 60.0):
                pass
        copy = (tmp_path / "e7").read_bytes()
    words.farewell()
    (tmp_path / "e7").write_bytes(copy)
    found = last_words.read(tmp_path, 7, "job", memory=lambda _: Memory("boot", 4))

    assert len(copy) < 200 * MANY / 2
    assert found.fatal == last_words.STARVED


def test_a_torn_line_is_no_evidence(tmp_path: Path) -> None:
    """B2: a full disk or a power cut tears a line, also the farewell; that is no fatal error."""
    began = json.dumps({"began": "other"}) + "\n"
    for torn in (began[:-5], began + '{"fare', began + "\0" * 20):
        (tmp_path / "e7").write_text(torn)

        assert last_words.read(tmp_path, 7, "job") == SILENT


def test_what_a_full_disk_has_torn_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B2: an attempt whose line has no room does not begin, and the farewell is a line again."""
    words, write = LastWords(tmp_path, 7), os.write

    def half(file: int, data: memoryview) -> int:
        if len(data) < 30:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data[:29])

    with words.attempt("job", 60.0):
        monkeypatch.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space"), words.attempt("other", 60.0):
            pytest.fail("it begins")
        monkeypatch.undo()
    words.farewell()

    assert last_words.read(tmp_path, 7, "job") == ORDERLY


def test_memory_that_ran_out_since_is_a_fatal_end(tmp_path: Path) -> None:
    """B2: a process that the kernel kills leaves no word; its host knows. Another host does not,
    and what happened before the job began does not count."""
    words = LastWords(tmp_path, 7, memory=lambda _: BAD)
    with words.attempt("job", 60.0):
        pass
    copy = (tmp_path / "e7").read_bytes()
    words.farewell()
    (tmp_path / "e7").write_bytes(copy)

    def fatal(now: Memory) -> str:
        return last_words.read(tmp_path, 7, "job", memory=lambda _: now).fatal

    assert fatal(BAD) == ""
    assert fatal(Memory("boot", 4)) == last_words.STARVED
    assert fatal(Memory("another", 4)) == ""


@pytest.mark.parametrize(
    ("now", "ran_out"),
    [
        (Memory("boot", 9, "a", 5, 1), False),
        (Memory("boot", 9, "a", 5, 2), True),
        (Memory("boot", 9, "a", 6, 0), True),
        (Memory("boot", 9), True),
        (Memory("boot", 3), False),
    ],
)
def test_what_another_cgroup_lacks_is_no_evidence(now: Memory, ran_out: bool) -> None:
    """B2: the kernel kills other processes of the host as well; the cgroup of the dead one tells,
    if it is still there."""
    assert now.ran_out_since(Memory("boot", 3, "a", 5, 1)) is ran_out


def test_this_process_has_a_cgroup_that_counts() -> None:
    """B2: what counts for it is read from the kernel, and found again by its name."""
    own = Memory.now()
    if not own.counter:
        pytest.skip("the cgroup of this process does not count")

    assert attrs.evolve(Memory.now(own.counter), kills=own.kills) == own


def test_a_process_is_left_as_it_was(tmp_path: Path) -> None:
    """B2: after the farewell os._exit is the system's own, and faulthandler as before."""
    before, exits = faulthandler.is_enabled(), os._exit
    words = LastWords(tmp_path, 1)
    with words.attempt("job", 60.0):
        assert os._exit is not exits
    words.farewell()
    words.farewell()

    assert os._exit is exits
    assert faulthandler.is_enabled() == before


def test_only_the_newest_leaderships_are_kept(tmp_path: Path) -> None:
    """B2: the files of old ones go when a new one is begun; strangers stay."""
    (tmp_path / "mine").touch()
    for epoch in range(1, 21):
        words = LastWords(tmp_path, epoch)
        with words.attempt("job", 60.0):
            pass
        words.farewell()

    assert (tmp_path / "mine").exists()
    assert len(list(tmp_path.iterdir())) == 18
    assert last_words.read(tmp_path, 20, "job") == ORDERLY
    assert last_words.read(tmp_path, 1, "job") == SILENT
