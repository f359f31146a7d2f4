"""The job result store, and the stores of jobs, requests and masters."""
