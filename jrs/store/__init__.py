"""The job result store, and the records of jobs, requests and masters around it."""
