"""The client: one connection to a cluster, and handles on its jobs."""
