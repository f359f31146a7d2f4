"""Files: durable operations on them, and the folders of a job."""
