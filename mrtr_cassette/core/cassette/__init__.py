"""What was recorded, as values and as the files that hold it."""
