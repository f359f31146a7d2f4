"""What the leader does: it gathers facts, decides about each job, and acts."""
