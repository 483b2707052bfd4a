"""What a recording, a replay or a cassette came to, as values and as text."""
