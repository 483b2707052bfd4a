"""What is known of one recorded exchange."""
