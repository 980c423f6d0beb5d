"""The screen of `octavo compare`: the lanes at work, side by side."""
