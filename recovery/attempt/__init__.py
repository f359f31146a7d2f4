"""One attempt to run a job: its context, its stages, its runner and its watchdog."""
