"""Where jobs that trace themselves write their spans. Apart from them: they set OpenTelemetry up."""

SPANS = "JRS_TEST_SPANS"
"""The environment variable that names the file."""
