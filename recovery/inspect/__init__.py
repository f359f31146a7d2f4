"""Inspecting a cluster: doctor, explain, fsck, history, the queue, and restoring an epoch."""
