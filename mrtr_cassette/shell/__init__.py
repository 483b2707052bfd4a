"""The shell: what waits. Sockets, files, clocks and processes; it decides nothing."""
