"""Cleanup: one idempotent unit per job, and the resources that it removes."""
