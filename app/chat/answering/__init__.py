"""From a chat to a reply: the engine in use, the requests it gets, and the room that they need."""
