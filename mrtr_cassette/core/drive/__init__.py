"""Having a conversation with a live server."""
