"""What the user writes: commands, completion, pasted and attached texts, drafts, and what was sent before."""
