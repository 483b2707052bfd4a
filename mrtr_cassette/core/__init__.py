"""The core: what decides. It has no sockets, files, clocks or tasks (tests/test_layering.py)."""
