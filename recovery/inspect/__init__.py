"""Inspecting a cluster without changing its jobs: doctor, the queue, and restoring an epoch."""
