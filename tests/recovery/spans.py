"""Where jobs that trace themselves write spans; they import OpenTelemetry, and tests need not."""

SPANS = "JRS_TEST_SPANS"
"""The environment variable that names the file."""
