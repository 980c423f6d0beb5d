"""What the widgets show, as plain text and data that need no widget."""
