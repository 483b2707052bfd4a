"""The disk: cassettes, journals, stores, locks, and the log."""
