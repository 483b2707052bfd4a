"""What a live server's questions are answered with, and by whom."""
