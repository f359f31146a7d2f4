"""Jobs that trace themselves: the module sets OpenTelemetry's SDK up, as users' code does."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)

from jrs import Job
from tests.recovery.spans import SPANS


class ToFile(SpanExporter):
    """Appends each span to a file as one line of JSON."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        while (slow := os.environ.get("JRS_TEST_UNTIL")) and not Path(slow).exists():
            time.sleep(0.01)
        with Path(os.environ[SPANS]).open("a") as file:
            for span in spans:
                file.write(json.dumps(plain(span)) + "\n")
        return SpanExportResult.SUCCESS


def plain(span: ReadableSpan) -> dict[str, Any]:
    context = span.get_span_context()
    assert context is not None
    return {
        "name": span.name,
        "trace": f"{context.trace_id:032x}",
        "span": f"{context.span_id:016x}",
        "parent": None if span.parent is None else f"{span.parent.span_id:016x}",
        "ok": span.status.is_ok,
        **dict(span.attributes or {}),
    }


if SPANS in os.environ:
    provider = TracerProvider()
    late = "late" in sys.argv or os.environ.get("JRS_TEST_LATE")
    provider.add_span_processor(BatchSpanProcessor(ToFile(), schedule_delay_millis=3_600_000)
                                if late else SimpleSpanProcessor(ToFile()))  # fmt: skip
    trace.set_tracer_provider(provider)


def fails_once_and_hangs_once(job: Job, pids: str) -> dict[str, str]:
    """Fail in the first attempt; hang after a stage in the second one; then finish."""
    if job.attempt == 1:
        raise ValueError("no good")
    job.stage("first", lambda stage: job.attempt)
    if job.attempt == 2:
        Path(pids).write_text(str(os.getpid()))
        time.sleep(3600)
    found: list[int] = []
    thread = threading.Thread(
        target=lambda: found.append(job.stage("second", lambda stage: 2).result())
    )
    thread.start()
    thread.join()
    with trace.get_tracer("mine").start_as_current_span("mine"):
        return {"traceparent": os.environ["TRACEPARENT"]}


def passes_on(job: Job) -> str:
    """Return what the attempt's process has in its environment."""
    return os.environ["TRACEPARENT"]


def traced(job: Job) -> int:
    return 1
