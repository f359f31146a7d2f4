"""The form of the files: lines, batches, the folder, and writing them durably."""
