"""What differs between two recordings of the same, and how much it matters."""
