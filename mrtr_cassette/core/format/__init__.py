"""The files: cassettes and journals as bytes, and bytes as what was recorded."""
