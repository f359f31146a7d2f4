"""What runs on this host: processes that are found, marked and killed, and pools of threads."""
