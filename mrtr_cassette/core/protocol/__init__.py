"""What a message is, what it asks or answers, and which call it belongs to."""
