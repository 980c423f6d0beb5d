"""Models that other programs on this machine hold."""
