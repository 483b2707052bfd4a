"""Reports on recordings, replays and cassettes, as values and as text."""
