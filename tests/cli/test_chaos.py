"""`jrs chaos run` says what it has found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner

from jrs.cli import chaos
from jrs.testing.chaos.checking.facts import Anomaly
from jrs.testing.chaos.checking.jobs import output_equals
from jrs.testing.chaos.checking.run_itself import OF_THE_RUN, no_crash
from jrs.testing.chaos.checking.store import fenced
from jrs.testing.chaos.checking.verdict import Check, Run, Violation, check
from jrs.testing.chaos.failure import ChaosFailure
from jrs.testing.chaos.reading import asked_for
from jrs.testing.chaos.recorded import Verb
from jrs.testing.chaos.recorder import Recording

RUN = Run([], {"backend": "file", "nemesis": "kill()"})


class Crashed:
    """A world in which a master crashes."""

    again = ""

    def __init__(self, plan: Any, scheme: str, folder: Path, *, again: str, say: Any) -> None:
        Crashed.again = again
        self.folder = folder
        self.ended = RUN

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, id: str, entry: str, /, **given: Any) -> None:
        pass

    def check(self, *checks: Check) -> Run:
        found = [Violation(no_crash.name, "m1 has ended with status 1")]
        raise ChaosFailure.of(RUN, self.folder, found, self.again)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_crash_is_named_whatever_was_checked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, as_json: bool
) -> None:
    """A run fails for it, so it says so; and what repeats the run has the same checks."""
    monkeypatch.setattr(chaos, "World", Crashed)
    entry = f"{__file__}:job"
    asked = ["run", entry, "--check", "fenced", "--check", "linearizable"]
    asked += ["--folder", str(tmp_path / "run")]
    found = CliRunner().invoke(chaos.chaos_command, [*asked, *(["--json"] if as_json else [])])
    assert found.exit_code == chaos.EXIT_VIOLATED, found.output
    if as_json:
        said = json.loads(found.stdout)
        assert said["checks"] == ["fenced", "linearizable", "no_crash"]
        assert said["not_checked"] == ["all_ended", "works"]
        assert [one["check"] for one in said["violations"]] == ["no_crash"]
    else:
        assert "broken       no_crash" in found.stdout
        assert "not checked  all_ended" in found.stdout
        assert "m1 has ended with status 1" in found.stdout
    assert Crashed.again.endswith("--check fenced --check linearizable")


@pytest.mark.parametrize("names", [[], ["--check", "blind"]])
def test_a_check_that_counts_as_blind_hides_no_violation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, names: list[str]
) -> None:
    """What it finds is a violation, whether or not it was asked for by name."""

    def blind(run: Run) -> Iterator[Anomaly]:
        """Finds a violation in nothing."""
        yield "found", ()

    one = check(blind, able=lambda run: False)
    monkeypatch.setattr(chaos, "run_of", lambda folder: RUN)
    monkeypatch.setattr(chaos, "checks_of", lambda names: [one])
    monkeypatch.setattr(chaos, "repeated", lambda names, notes: [one])
    found = CliRunner().invoke(chaos.chaos_command, ["check", str(tmp_path), *names])
    assert found.exit_code == chaos.EXIT_VIOLATED, found.output
    assert "broken       blind" in found.stdout


def checked(folder: Path, *names: str) -> dict[str, Any]:
    found = CliRunner().invoke(chaos.chaos_command, ["check", str(folder), *names, "--json"])
    assert found.exit_code in (0, chaos.EXIT_VIOLATED), found.output
    said: dict[str, Any] = json.loads(found.stdout)
    assert found.exit_code == bool(said["violations"])
    return said


def test_a_check_repeats_what_the_run_was_asked_for(tmp_path: Path) -> None:
    """With what it expected; a check whose notes a run has not left finds nothing."""
    recording = Recording(tmp_path / "history", "p")
    recording.note(Verb.ALIVE)
    recording.close()
    assert checked(tmp_path)["violations"] == []
    assert checked(tmp_path, "--check", "linearizable")["violations"] == []

    ended = {"j": {"status": "FINISHED", "payload": 1, "files": []}}
    notes = {"unfinished": [], "broken": [], "wrong": [], "left": [], "ended": ended}
    for asked, wrong in (
        ([fenced], 0),
        ([output_equals({"j": 1})], 0),
        ([output_equals({"j": 2})], 1),
    ):
        kept = asked_for([*asked, *OF_THE_RUN], notes)
        (tmp_path / "run.json").write_text(json.dumps(kept))
        said = checked(tmp_path)
        assert {*said["checks"], *said["not_checked"]} >= {asked[0].name, "all_ended"}
        assert len(said["checks"]) + len(said["not_checked"]) == 4
        assert len(said["violations"]) == wrong


def test_what_is_expected_but_is_no_json_is_not_repeated(tmp_path: Path) -> None:
    """Its text would be compared. What is JSON is, also of the same run."""
    recording = Recording(tmp_path / "history", "p")
    recording.note(Verb.ALIVE)
    recording.close()
    ended = {id: {"status": "FINISHED", "payload": 0.1 + 0.2} for id in ("j", "k")}
    notes = {"unfinished": [], "broken": [], "wrong": [], "left": [], "ended": ended}
    near = pytest.approx(0.3)
    for expected, wrong in (({"j": near}, 0), ({"j": near, "k": 0.3}, 1)):
        asked = output_equals(expected)
        assert len(asked.violations(Run([], notes))) == wrong
        kept = asked_for([asked, *OF_THE_RUN], notes)
        (tmp_path / "run.json").write_text(json.dumps(kept, default=repr))
        said = checked(tmp_path)
        assert [one["check"] for one in said["violations"]] == ["output_equals"] * wrong
        assert ("output_equals" in said["not_checked"]) is (wrong == 0)


def job(job: Any) -> None:
    """Do nothing."""
