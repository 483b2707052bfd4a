"""The core: what decides. It has no sockets, files, clocks or tasks (see tests/test_layering.py)."""
