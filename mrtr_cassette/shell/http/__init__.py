"""HTTP between a client and us, and between us and a server."""
