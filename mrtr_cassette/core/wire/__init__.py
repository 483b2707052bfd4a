"""Bytes: exact JSON and its spans, the framing of event streams, one HTTP exchange."""
