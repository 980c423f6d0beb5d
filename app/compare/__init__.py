"""The comparison: the same work through the paged engine and through llama.cpp, side by side."""
