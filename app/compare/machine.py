"""What a comparison runs on: processor, memory, versions, the model's hash, and whether other programs are busy."""

from __future__ import annotations
