"""Model files on disk: where they live and how a name becomes a path."""
