"""The probes of a master: each answers by its status code."""

from __future__ import annotations

import attrs

from jrs.contract.texts import one_line

from . import metrics
from .facts import MasterFacts

TEXT = "text/plain; charset=utf-8"


@attrs.frozen
class Answer:
    """What is answered to one request."""

    status: int
    body: str
    kind: str = TEXT
    headers: tuple[tuple[str, str], ...] = ()


def answer(method: str, path: str, facts: MasterFacts, accept: str = "") -> Answer:
    """Return the answer to a request, which names the epoch while the master leads; the status is
    404 if there is no such probe.

    Args:
        accept: the header of that name.
    """
    if method in ("GET", "HEAD"):
        found = _answer(path, facts, accept)
    else:
        found = Answer(405, "only GET\n", headers=(("Allow", "GET, HEAD"),))
    if not facts.leads:
        return found
    return attrs.evolve(found, headers=(*found.headers, ("X-JRS-Epoch", str(facts.epoch))))


def _answer(path: str, facts: MasterFacts, accept: str) -> Answer:
    if path == "/metrics":
        as_open = metrics.asks_open(accept)
        kind = metrics.OPEN_METRICS if as_open else metrics.CONTENT_TYPE
        return Answer(200, metrics.exposition(facts, as_open=as_open), kind)
    probes = {
        "/livez": (facts.live, "the leader's loop does not turn"),
        "/readyz": (facts.ready, _not_ready(facts)),
        "/leader": (facts.leads, "this master does not lead"),
        "/standby": (not facts.leads and facts.ready, _no_standby(facts)),
    }
    if path not in probes:
        return Answer(404, f"no such probe; there are {', '.join(probes)} and /metrics\n")
    yes, why_not = probes[path]
    return Answer(200 if yes else 503, "yes\n" if yes else f"{why_not}\n")


def _no_standby(facts: MasterFacts) -> str:
    return "this master leads" if facts.leads else _not_ready(facts)


def _not_ready(facts: MasterFacts) -> str:
    # As one line: a body of probes is one.
    return one_line(facts.leaderships.held) if facts.reachable else "the backend does not answer"
