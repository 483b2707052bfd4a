"""The embedded server, and the main job shown on it."""
