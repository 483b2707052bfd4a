"""A server whose calls require input, and the main job shown on it: record, replay, compare."""
