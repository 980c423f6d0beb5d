"""What the user may set: a chat's settings, keys and themes."""
