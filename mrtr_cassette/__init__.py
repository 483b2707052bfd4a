"""Record and replay MCP conversations whose calls ask for input half-way."""

__version__ = "0.1.0"
