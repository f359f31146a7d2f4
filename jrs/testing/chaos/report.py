"""The report of a chaos run: one page that shows who led, what ran, and what broke."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import attrs

from jrs.contract.errors import InvalidInput
from jrs.testing.chaos.checking.jobs import attempts_of, counts
from jrs.testing.chaos.checking.verdict import Check, Run, Violation
from jrs.testing.chaos.recorded import FOREVER, LISTS, Call, Kind, Verb

_WIDTH = 1000.0
"""The width of the picture, in its own units."""
_MOST_JOBS = 40
"""Jobs that the picture shows: first those of violations."""
_MOST_LISTS = 6
"""Lists that the page shows of an operation that has read many."""


@attrs.frozen
class Bar:
    """A stretch of time in the picture.

    Attributes:
        left, width: in the picture's units.
        style: the class of its style.
        label: what it says when it is pointed at.
    """

    left: float
    width: float
    style: str
    label: str


@attrs.frozen
class Lane:
    """A line of the picture."""

    name: str
    bars: tuple[Bar, ...]


def check_installed() -> None:
    """Raise `InvalidInput` unless reports can be written here."""
    if find_spec("jinja2") is None:
        raise InvalidInput("chaos runs need jinja2 for their reports: pip install 'jrs[chaos]'")


def write_report(
    path: Path, run: Run, checks: Sequence[Check], found: Sequence[Violation], again: str
) -> None:
    """Write the report of a run as one file that needs no other."""
    import jinja2  # An extra.

    picture = _Picture(run, found)
    template = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True,
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    ).get_template("report.html")  # fmt: skip
    by_check = {each.name: [one for one in found if one.check == each.name] for each in checks}
    text = template.render(
        run=run,
        notes=run.notes,
        checks=checks,
        blind={each.name for each in checks if not each.can_judge(run)},
        by_check=by_check,
        found=found,
        figures=counts(run),
        strikes=strikes_by_nemesis(run),
        lanes=list(picture.lanes()),
        bands=list(picture.bands()),
        marks=list(picture.marks()),
        ticks=list(picture.ticks()),
        calls={name: _told(call, picture.seconds) for name, call in picture.proof.items()},
        width=_WIDTH,
        again=again,
    )
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


def strikes_by_nemesis(run: Run) -> list[dict[str, Any]]:
    """Return for each nemesis: its strikes, how many hit anyone, and the seconds from each of
    these until the next commit of a leader.

    The median and the longest of them are the time to recover from it; infinity: there was none.
    """
    commits = sorted(
        call.ended for call in run.calls
        if call.f is Verb.COMMIT and call.type is Kind.OK and call.epoch is not None
    )  # fmt: skip
    waits: dict[str, list[float]] = defaultdict(list)
    place = 0
    for event in run.events:
        if event.f is Verb.STRIKE:
            while place < len(commits) and commits[place] <= event.t:
                place += 1
            until = (commits[place] - event.t) / 1e9 if place < len(commits) else float("inf")
            waits[event.key].append(until)
    rows = []
    tallies = run.notes.get("faults", {})
    for name in sorted({*waits, *tallies}):
        ordered = sorted(waits[name]) or [float("inf")]
        tally = tallies.get(name, {})
        rows.append({"name": name, "strikes": tally.get("strikes", len(waits[name])),
                     "hits": len(waits[name]), "median": ordered[len(ordered) // 2],
                     "most": ordered[-1], "why": tally.get("why", "")})  # fmt: skip
    return rows


def _told(call: Call, seconds: Any) -> str:
    """Return an operation in words."""
    lists = ", ".join(_lists(call))
    asked = {
        Verb.GET: f"read {call.key}",
        Verb.SCAN: f"listed {lists or call.key or 'everything'}",
        Verb.GET_MANY: f"read {lists or 'some keys'}",
        Verb.CAMPAIGN: f"campaigned, and led epoch {call.epoch}",
    }.get(call.f, "")
    if call.f is Verb.COMMIT:
        asked = "committed " + ", ".join(_part(part) for part in call.value)
    if call.f is Verb.GET:
        asked += f": version {call.version}" if call.version is not None else ": absent"
    until = "never answered" if call.ended == FOREVER else f"to {seconds(call.ended):.3f} s"
    how = {Kind.OK: "", Kind.FAIL: f": refused, {call.error}", Kind.INFO: ": outcome unknown"}
    return f"{call.process} {asked}{how[call.type]} ({seconds(call.begun):.3f} s {until})"


def _part(part: list[Any]) -> str:
    kind, key, *more = part
    if kind == "absent":
        return f"if {key} is absent"
    if kind == "check":
        return f"if {key} is at {more[-1]}"
    at = f" at {more[-1]}" if kind in ("update", "delete") and more[-1] is not None else ""
    if key.startswith(LISTS) and kind in ("create", "update"):
        return f"{kind} {key}{at} to [{_end_of(more[0])}]"
    return f"{kind} {key}{at}"


def _lists(call: Call) -> Iterator[str]:
    """Yield the first lists that were read at once."""
    read = call.value or [] if call.f is Verb.GET_MANY else []
    if call.f is Verb.SCAN and call.value:
        read = call.value[2]
    some = [row for row in read if row[0].startswith(LISTS)]
    yield from (f"{key} [{_end_of(text)}]" for key, _, text in some[:_MOST_LISTS])


def _end_of(text: str | None) -> str:
    """Return the last elements of a list."""
    elements = (text or "").split()
    return " ".join(["…", *elements[-3:]] if len(elements) > 3 else elements)


def _strikes(run: Run) -> Iterator[tuple[str, str, int, int]]:
    """Yield each strike, in order: the nemesis, whom it hit, and from when to when."""
    healed = {event.seq: event.t for event in run.events if event.f is Verb.HEAL}
    for event in run.events:
        if event.f is Verb.STRIKE:
            yield event.key, str(event.value), event.t, healed.get(event.seq, event.t)


class _Picture:
    def __init__(self, run: Run, found: Sequence[Violation]) -> None:
        self._run = run
        self._found = found
        times = [event.t for event in run.events] or [0, 1]
        self._first, self._last = times[0], max(times[-1], times[0] + 1)
        wanted = {name for violation in found for name in violation.calls}
        calls = {call.name: call for call in run.calls}
        self._strikes = list(_strikes(run))
        # Behind a colon is the number of one of many reads.
        self.proof = {
            name: calls[name.partition(":")[0]]
            for name in wanted
            if name.partition(":")[0] in calls
        }

    def seconds(self, t: int) -> float:
        """Return a moment in seconds since the run's beginning."""
        return (t - self._first) / 1e9

    def _x(self, t: int) -> float:
        return _WIDTH * (min(t, self._last) - self._first) / (self._last - self._first)

    def _bar(self, begun: int, ended: int, style: str, label: str) -> Bar:
        left = self._x(begun)
        return Bar(round(left, 2), round(max(1.5, self._x(ended) - left), 2), style, label)

    def lanes(self) -> Iterator[Lane]:
        yield from self._hosts()
        yield from self._nemeses()
        yield from self._jobs()

    def _nemeses(self) -> Iterator[Lane]:
        """Yield a lane for each nemesis: its strikes, until they were healed."""
        bars: dict[str, list[Bar]] = defaultdict(list)
        for name, whom, begun, ended in self._strikes:
            label = f"{name}: {whom}, at {self.seconds(begun):.2f} s"
            bars[name].append(self._bar(begun, ended, "harm", label))
        for name in sorted(bars):
            yield Lane(name, tuple(bars[name]))

    def _hosts(self) -> Iterator[Lane]:
        """Yield a lane for each host: the lives of its masters, and when they led."""
        lives: dict[str, list[int]] = {}
        for event in self._run.events:
            lives.setdefault(event.process, [event.t, event.t])[1] = event.t
        led = sorted(
            (call.ended, call.process, call.epoch)
            for call in self._run.calls
            if call.f is Verb.CAMPAIGN and call.type is Kind.OK
        )
        bars: dict[str, list[Bar]] = defaultdict(list)
        attempts = {
            event.process
            for event in self._run.events
            if event.f is Verb.ALIVE and not event.key  # Others are threads of a driver.
        }
        for process, (begun, ended) in lives.items():
            if process not in attempts and not process.startswith("world."):
                label = f"{process}: {self.seconds(begun):.2f} s to {self.seconds(ended):.2f} s"
                bars[process.rpartition(".")[0]].append(self._bar(begun, ended, "life", label))
        for number, (begun, process, epoch) in enumerate(led):
            after = led[number + 1][0] if number + 1 < len(led) else self._last
            ended = min(after, lives[process][1])
            label = f"{process} leads in epoch {epoch} from {self.seconds(begun):.2f} s"
            bars[process.rpartition(".")[0]].append(self._bar(begun, ended, "leads", label))
        for host in sorted(bars):
            yield Lane(host, tuple(bars[host]))

    def _jobs(self) -> Iterator[Lane]:
        """Yield a lane for each job: its attempts."""
        attempts = attempts_of(self._run)
        named = " ".join(violation.message for violation in self._found)
        jobs = sorted(
            dict.fromkeys(attempt.job_id for attempt in attempts),
            key=lambda job_id: (job_id not in named, job_id),
        )
        for job_id in jobs[:_MOST_JOBS]:
            bars = [
                self._bar(
                    attempt.begun, attempt.ended, "attempt",
                    f"{job_id}: an attempt of epoch {attempt.epoch}, in {attempt.process}",
                )
                for attempt in attempts
                if attempt.job_id == job_id
            ]  # fmt: skip
            yield Lane(job_id, tuple(bars))

    def bands(self) -> Iterator[Bar]:
        """Yield the stretches of time in which any nemesis did harm."""
        begun = ended = -1
        for _, _, at, until in self._strikes:
            if at > ended and ended >= 0:
                yield self._bar(begun, ended, "band", "a nemesis does harm")
            begun = at if at > ended else begun
            ended = max(ended, until)
        if ended >= 0:
            yield self._bar(begun, ended, "band", "a nemesis does harm")

    def marks(self) -> Iterator[Bar]:
        """Yield the moments of the operations that prove a violation."""
        for call in self.proof.values():
            yield self._bar(call.begun, min(call.ended, self._last), "proof",
                            _told(call, self.seconds))  # fmt: skip

    def ticks(self) -> Iterator[tuple[float, str]]:
        """Yield the places of whole seconds, at most a dozen."""
        whole = self.seconds(self._last)
        step = next(step for step in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 10**9)
                    if whole / step <= 12)  # fmt: skip
        at = 0.0
        while at <= whole:
            yield round(_WIDTH * at / whole, 2), f"{at:g} s"
            at += step
