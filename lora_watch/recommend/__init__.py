"""What would help and by how much: exact replays of the user's own requests."""
