"""The API and the page of a cluster: one more client, which answers over HTTP."""
