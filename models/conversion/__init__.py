"""From checkpoints of Hugging Face (safetensors) to GGUF."""
