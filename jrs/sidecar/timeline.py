"""The time line of a job, as SVG: epochs as bands, attempts and stages as bars, failovers marked.

It has no style of its own: the classes are those of the page's style sheet. Everything it shows is
in a table next to it, too.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import attrs

from jrs.client.job_overview import JobOverview
from jrs.contract.texts import bounded, counted, printable, span, when
from jrs.records.attempts import AttemptSummary
from jrs.records.history import HistoryKind
from jrs.records.model import JobStatus
from jrs.records.stages import StageSummary
from jrs.recovery.inspect.history import HistoryEntry
from jrs.store.job_views import JobView

_WIDTH = 1000.0
_MOST_LEFT, _RIGHT = 170.0, 20.0
_CHARACTER = 7.0
"""The width of a character of a name, about; what is left of the bars is as wide as the names."""
_TOP, _ROW, _BAR = 30.0, 26.0, 16.0
_AXIS = 24.0
"""Below the rows, for the times."""
_MOST_STAGES = 12
_MOST_ATTEMPTS = 60
_LEAST = 3.0
"""The width of a bar that would be too narrow to be seen."""
_MARKED = (
    *(HistoryKind.SNAPSHOT, HistoryKind.STOP, HistoryKind.SUSPENDED, HistoryKind.RESUMED),
    *(HistoryKind.CHANGED, HistoryKind.CANCEL, HistoryKind.RESTORE, HistoryKind.HELD),
)


@attrs.frozen
class Bar:
    """Something that lasted: from when to when, and how it ended."""

    start: float
    end: float
    kind: str
    """``running``, ``done``, ``died``, ``lost``: its class."""
    text: str
    word: str = ""
    """How it ended, where there is room for it; not only its colour tells."""


@attrs.frozen
class Epoch:
    """The time in which one leader dealt with the job, from its first act on."""

    number: int
    start: float
    master: str


@attrs.frozen
class Scale:
    """Where moments are on the picture."""

    first: float
    last: float
    left: float = _MOST_LEFT
    """Where the first moment is."""

    def at(self, moment: float) -> float:
        """Return the horizontal place of a moment."""
        share = (moment - self.first) / max(self.last - self.first, 1e-3)
        return self.left + min(1.0, max(0.0, share)) * (_WIDTH - self.left - _RIGHT)


def timeline(found: JobOverview) -> str:
    """Return the time line; empty if the job was never started."""
    view, history = found.view, found.history
    attempts = found.attempts[-_MOST_ATTEMPTS:]
    if not attempts or not attempts[0].started_at:
        return ""
    bars = [_bar_of(one, later, found) for one, later in _with_next(attempts)]
    if view.status is JobStatus.FAILED:
        bars[-1] = attrs.evolve(bars[-1], kind="died", word="failed")
    numbered = {one.attempt: bar for bar, one in zip(bars, attempts, strict=True)}
    stages = _stages(view) | _unfinished(view, history, numbered)
    marks = [one for one in history if one.kind in _MARKED]
    epochs = _epochs(attempts, history)
    first = min(one.start for one in (*bars, *stages.values()))
    last = max(one.end for one in (*bars, *stages.values()))
    last = max([last, *(one.at for one in marks), *(one.start for one in epochs)])
    scale = Scale(first, max(last, first + 1.0), _left_of(("attempts", "requests", *stages)))
    rows = 1 + len(stages) + bool(marks)
    height = _TOP + rows * _ROW + _AXIS
    parts = [*_bands(epochs, scale, height), *_axis(scale, height)]
    parts += _row("attempts", 0, [(bar, str(one.attempt)) for bar, one in
                                  zip(bars, attempts, strict=True)], scale)  # fmt: skip
    for number, (name, bar) in enumerate(stages.items(), 1):
        parts += _row(name, number, [(bar, "")], scale)
    if marks:
        parts += _marks(marks, rows - 1, scale)
    parts += _failovers(epochs, scale, height)
    return _picture(parts, height, _description(view, attempts, epochs, stages))


def _left_of(names: Iterable[str]) -> float:
    """Return the room that the names of the rows take."""
    longest = max(len(_short(name)) for name in names)
    return min(_MOST_LEFT, 20.0 + _CHARACTER * longest)


# -- what is shown -------------------------------------------------------------------------


def _with_next(
    attempts: Sequence[AttemptSummary],
) -> Iterable[tuple[AttemptSummary, AttemptSummary | None]]:
    return zip(attempts, (*attempts[1:], None), strict=True)


def _bar_of(one: AttemptSummary, later: AttemptSummary | None, found: JobOverview) -> Bar:
    """Return an attempt's bar. The end of one that died with its leader is not recorded: it is
    drawn up to the next attempt, or up to now if there is none yet, as lost."""
    text = f"attempt {one.attempt}, epoch {one.epoch}, by {one.master}"
    end = found.line.finished_at if later is None else 0.0
    if one.ended_at:
        done = one.ended in ("", "finished", "suspended") or end
        kind, word = ("done", "ended") if done else ("died", "died")
        return Bar(one.started_at, one.ended_at, kind, f"{text}: {one.ended or 'ended'}", word)
    if end:
        return Bar(one.started_at, end, "done", f"{text}: ended", "ended")
    if later is None and found.runs:
        return Bar(one.started_at, found.at, "running", f"{text}: running", "running")
    if later is not None or found.view.status is JobStatus.RUNNING:
        until = found.at if later is None else later.started_at
        said = f"{text}: its end was not recorded"
        return Bar(one.started_at, until, "lost", said, "end not recorded")
    return Bar(one.started_at, one.started_at, "died", f"{text}: it could not start, or was ended")


def _epochs(attempts: Sequence[AttemptSummary], history: Iterable[HistoryEntry]) -> list[Epoch]:
    """Return the epochs of the attempts, and the later ones, of leaders that only cleaned up."""
    acts = [Epoch(one.epoch, one.started_at, one.master) for one in attempts]
    later = (one for one in history if one.epoch > acts[-1].number)
    acts += [Epoch(one.epoch, one.at, one.by) for one in later]
    firsts: dict[int, Epoch] = {}
    for act in acts:
        firsts.setdefault(act.number, act)
    return list(firsts.values())


def _stages(view: JobView) -> dict[str, Bar]:
    """Return a bar for each finished stage whose times are known, the newest ones."""
    result = view.entry.result if view.entry is not None else None
    found: list[StageSummary] = (
        list(result.stages) if result is not None else [one.summary() for one in view.stages]
    )
    known = [one for one in found if one.finished_at and one.attempt]
    return {
        one.name: Bar(
            one.finished_at - one.seconds, one.finished_at, "stage",
            f"stage {one.name}, attempt {one.attempt}, {span(one.seconds)}",
        )
        for one in known[-_MOST_STAGES:]
    }  # fmt: skip


def _unfinished(
    view: JobView, history: Iterable[HistoryEntry], attempts: Mapping[int, Bar]
) -> dict[str, Bar]:
    """Return a bar for each batch stage that was begun and has not finished, in its newest attempt:
    up to the attempt's end."""
    result = view.entry.result if view.entry is not None else None
    done = {one.name for one in (view.stages if result is None else result.stages)}
    begun = {one.begun_stage: one for one in history if one.begun_stage not in ("", *done)}
    found = {}
    for name, one in list(begun.items())[-_MOST_STAGES:]:
        if (bar := attempts.get(one.attempt)) is not None:
            said = f"stage {name}, attempt {one.attempt}: it has not finished"
            found[name] = Bar(one.at, max(one.at, bar.end), bar.kind, said)
    return found


def _description(
    view: JobView,
    attempts: Sequence[AttemptSummary],
    epochs: Sequence[Epoch],
    stages: dict[str, Bar],
) -> str:
    parts = [
        counted(len(attempts), "attempt", "attempts"),
        f"in {counted(len(epochs), 'epoch', 'epochs')}",
        f"from {when(attempts[0].started_at)}",
        counted(len(stages), "stage", "stages"),
    ]
    return f"Time line of job {view.job_id}: {', '.join(parts)}. The table below has all of it."


# -- drawing -------------------------------------------------------------------------------


def _picture(parts: Iterable[str], height: float, said: str) -> str:
    return (
        f'<svg class="timeline" viewBox="0 0 {_WIDTH:g} {height:g}" role="img" '
        f'aria-labelledby="timeline-title timeline-desc">'
        f'<title id="timeline-title">Time line</title>'
        f'<desc id="timeline-desc">{_text(said)}</desc>{"".join(parts)}</svg>'
    )


def _bands(epochs: Sequence[Epoch], scale: Scale, height: float) -> Iterable[str]:
    """Yield a band for each epoch, up to the next one."""
    ends = [*(one.start for one in epochs[1:]), scale.last]
    for number, (one, until) in enumerate(zip(epochs, ends, strict=True)):
        start, end = scale.at(one.start), scale.at(until)
        kind = "odd" if number % 2 else "even"
        yield (
            f'<rect class="band {kind}" x="{start:.1f}" y="{_TOP - 6:g}" '
            f'width="{end - start:.1f}" height="{height - _TOP - _AXIS + 4:g}"/>'
        )
        name = f"epoch {one.number}"
        yield from _fitting("epoch", (f"{name} · {one.master}", name), start, end - start, 12)


def _axis(scale: Scale, height: float) -> Iterable[str]:
    first = when(scale.first).removesuffix(" UTC")
    yield _label("tick", scale.left, height - 6, first)
    for share, anchor in ((0.5, "middle"), (1.0, "end")):
        moment = scale.first + share * (scale.last - scale.first)
        said = when(moment).removesuffix(" UTC")
        day, _, clock = said.rpartition(" ")
        said = clock if first.startswith(day) else said
        yield _label("tick", scale.at(moment), height - 6, said, anchor)


def _row(name: str, number: int, bars: Iterable[tuple[Bar, str]], scale: Scale) -> Iterable[str]:
    top = _TOP + number * _ROW
    yield _label("name", scale.left - 10, top + 12, _short(name), "end")
    for bar, label in bars:
        start, end = scale.at(bar.start), scale.at(bar.end)
        width = max(_LEAST, end - start)
        yield (
            f'<g><title>{_text(bar.text)}</title><rect class="bar {bar.kind}" x="{start:.1f}" '
            f'y="{top:g}" width="{width:.1f}" height="{_BAR:g}" rx="3"/></g>'
        )
        texts = (f"{label} {bar.word}", label) if label else ()
        yield from _fitting(f"label {bar.kind}", texts, start, width, top + 12)


def _marks(marks: Iterable[HistoryEntry], number: int, scale: Scale) -> Iterable[str]:
    middle = _TOP + number * _ROW + 8
    yield _label("name", scale.left - 10, middle + 4, "requests", "end")
    for one in marks:
        x = scale.at(one.at)
        yield (
            f"<g><title>{_text(one.text)}</title>"
            f'<circle class="mark {one.kind.value}" cx="{x:.1f}" cy="{middle:g}" r="5"/></g>'
        )


def _failovers(epochs: Sequence[Epoch], scale: Scale, height: float) -> Iterable[str]:
    for one in epochs[1:]:
        x = scale.at(one.start)
        said = f"failover: {one.master} leads, epoch {one.number}"
        yield (
            f'<g class="failover"><title>{_text(said)}</title>'
            f'<line x1="{x:.1f}" y1="{_TOP - 6:g}" x2="{x:.1f}" y2="{height - _AXIS - 2:g}"/>'
            f'<path d="M{x - 5:.1f} {_TOP - 12:g} h10 l-5 7 z"/></g>'
        )


def _fitting(kind: str, texts: Iterable[str], x: float, width: float, y: float) -> Iterable[str]:
    """Yield the first text that fits what it names, if one does."""
    fits = (text for text in texts if width > 12 + _CHARACTER * len(text))
    yield from (_label(kind, x + 6, y, text) for text in islice(fits, 1))


def _label(kind: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:g}" text-anchor="{anchor}">{_text(text)}</text>'


def _short(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:23]}…"


def _text(text: str) -> str:
    return html.escape(printable(bounded(text, 400)))
