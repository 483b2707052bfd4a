"""From the bytes that pass to the interactions of a cassette."""
