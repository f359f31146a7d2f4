"""Tracing: the spans of an attempt and of its stages, where the process uses OpenTelemetry.

Only its API is used: whether and where spans are exported is what the user's own set-up says. All
attempts of a job are parts of one trace: that of its submitter, or one that is named after the job.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from jrs.contract.runtime import JrsThread
from jrs.records import traceparent
from jrs.records.model import JobSpec
from jrs.records.stages import StageRecord

ATTEMPT = "jrs.attempt"
STAGE = "jrs.stage"
FLUSHED_IN = 5.0
"""Seconds for which a process that ends waits for its spans to be exported."""


class Tracing:
    """The spans of one attempt; without OpenTelemetry, none.

    It is used if the job's code, or what started its process, has loaded it; and also if the
    submitter was traced, since the function may set it up later.
    """

    def __init__(self, spec: JobSpec, cluster: str, attributes: Mapping[str, str | int]) -> None:
        self._wanted = bool(traceparent.valid(spec.traceparent))
        self._parent = traceparent.of_job(spec.traceparent, cluster, spec.job_id)
        self._attributes = dict(attributes)
        self._inside: Any = None
        """The context with the span of the attempt."""

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Have the block, which calls the job's function, be the span of the attempt."""
        trace = _loaded(self._wanted)
        if trace is None:
            yield
            return
        parent, tracer = self._context(trace), trace.get_tracer("jrs")
        with tracer.start_as_current_span(ATTEMPT, parent, attributes=self._attributes) as span:
            self._inside = trace.set_span_in_context(span, parent)
            yield

    def stage(self, name: str) -> AbstractContextManager[object]:
        """Return what makes a block the span of a stage, on whatever thread it runs."""
        trace = _loaded(self._inside is not None)
        if trace is None:
            return nullcontext()
        # A thread of the job's own does not inherit the context of the attempt.
        is_inside = trace.get_current_span().get_span_context().is_valid
        inside = None if is_inside else self._context(trace)
        given = {**self._attributes, STAGE: name}
        entered: AbstractContextManager[object] = trace.get_tracer("jrs").start_as_current_span(
            STAGE, inside, attributes=given
        )
        return entered

    def finished(self, record: StageRecord) -> None:
        """Record the span of a streaming stage, which has finished."""
        trace = _loaded(self._inside is not None)
        if trace is None:
            return
        end = int(record.finished_at * 1e9)
        given = {**self._attributes, STAGE: record.name}
        span = trace.get_tracer("jrs").start_span(
            STAGE,
            self._context(trace),
            attributes=given,
            start_time=end - int(record.seconds * 1e9),
        )
        span.end(end)

    def _context(self, trace: Any) -> Any:
        """Return the context with the span of the attempt, or of what the job is a part of."""
        if self._inside is not None:
            return self._inside
        trace_id, span_id, flags = traceparent.parts(self._parent)
        remote = trace.SpanContext(trace_id, span_id, True, trace.TraceFlags(flags))
        return trace.set_span_in_context(trace.NonRecordingSpan(remote))


def flush() -> None:
    """Have the spans of this process exported, before it ends without Python's own end."""
    trace = _loaded(False)
    provider = None if trace is None else trace.get_tracer_provider()
    flushed = getattr(provider, "force_flush", None)  # Of the SDK: the API has no such method.
    if flushed is not None:
        thread = JrsThread(target=flushed, name="jrs-spans", daemon=True)
        thread.start()
        thread.join(FLUSHED_IN)


def _loaded(wanted: bool) -> Any:
    """Return OpenTelemetry's module for traces; None if it is not loaded, and cannot or need not
    be."""
    if wanted:
        try:
            import opentelemetry.trace  # noqa: F401 - only whether it can be imported
        except ImportError:
            return None
    return sys.modules.get("opentelemetry.trace")
