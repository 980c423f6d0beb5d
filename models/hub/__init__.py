"""The Hugging Face hub: references, search, what a repository offers, downloads."""
