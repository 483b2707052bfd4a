"""One cassette in a test suite, without what is pytest's own."""
