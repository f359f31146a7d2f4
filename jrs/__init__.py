"""jrs: an embedded JobResultStore and high-availability recovery for Python drivers."""
