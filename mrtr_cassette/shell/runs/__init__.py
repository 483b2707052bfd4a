"""What a command, fixture or call runs: record, replay, verify, call."""
