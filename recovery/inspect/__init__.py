"""Looking at a cluster without changing it: fsck, explain, doctor."""
