"""Choices that the user is given, above all of models."""
