"""The chat app: conversations, the engine that answers them, and the Textual screens that show both."""
