"""Chats on disk: one SQLite file, which several instances of the app use at once."""
