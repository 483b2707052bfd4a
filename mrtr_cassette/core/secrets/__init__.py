"""What must not reach the disk, where it stands in what passes, and what stands for it there."""
