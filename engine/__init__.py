"""The headless core of Octavo: from a GGUF file and token ids to tokens."""
