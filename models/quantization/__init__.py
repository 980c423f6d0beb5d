"""Quantizing a model with llama.cpp: types, plans, the work in a process of its own, and what it costs in quality."""
