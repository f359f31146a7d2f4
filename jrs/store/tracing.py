"""The span that this process works in, if it traces itself. Imports no package for that."""

from __future__ import annotations

import os
import sys

from jrs.records import traceparent


def current_traceparent() -> str:
    """Return the ``traceparent`` of the current span: of OpenTelemetry if this process has loaded
    it, else of the environment variable TRACEPARENT; empty if there is none."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is not None:
        context = trace.get_current_span().get_span_context()
        if context.is_valid:
            found = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
            return traceparent.valid(found)
    return traceparent.valid(os.environ.get(traceparent.VARIABLE, ""))
