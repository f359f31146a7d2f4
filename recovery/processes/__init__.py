"""Processes of this host: finding, marking and killing them; and pools of threads."""
