"""A cassette as a page that a browser opens from disk."""
