"""KV memory after a short chat in a long window, paged and contiguous.

Usage: python scripts/kv_memory.py [MODEL.gguf] [--tokens 200] [--context 8192]

Each engine holds the same number of tokens. "Used" is what those tokens take; "resident" is physical memory behind the
cache; "process" is by how much the process grew from the loaded model to the end of the chat, and for the contiguous
engine, which allocates when it loads, from before loading (weights mapped from the file included).
"""

from __future__ import annotations

import click

from engine.config import EngineConfig
from engine.contiguous import ContiguousEngine
from engine.interface import Engine
from engine.memory import resident_bytes
from engine.paged import PagedEngine
from engine.sequence import KvStats, Request, SamplingParams
from engine.units import format_bytes
from models.locate import locate


def chat(engine: Engine, n_tokens: int) -> KvStats:
    """Fill the cache with a prompt and an answer of `n_tokens` in all; returns the state at the last token."""
    n_prompt = n_tokens // 2
    engine.submit(Request(tuple(range(100, 100 + n_prompt)), SamplingParams(temperature=0), n_tokens - n_prompt + 1))
    stats = engine.kv_stats()
    while engine.has_work():
        stats = engine.kv_stats()
        engine.step()
    return stats


@click.command(help=__doc__)
@click.argument("model", required=False)
@click.option("--tokens", default=200, help="Of prompt and answer together.")
@click.option("--context", default=8192, help="The window.")
def main(model: str | None, tokens: int, context: int) -> None:
    path = str(locate(model))
    config = EngineConfig(context=context, device="CPU")
    print(f"{tokens} tokens in a window of {context}, {path}")
    print(f"{'engine':12}{'used':>12}{'resident':>12}{'reserved':>12}{'process':>12}")
    for kind in (PagedEngine, ContiguousEngine):
        before = resident_bytes()
        engine = kind(path, config, lambda _fraction: None)
        stats = chat(engine, tokens)
        sizes = (
            stats.bytes_used,
            stats.bytes_resident,
            stats.bytes_contiguous_would_reserve if kind is ContiguousEngine else 0,
            resident_bytes() - before,
        )
        print(f"{engine.name:12}" + "".join(f"{format_bytes(size):>12}" for size in sizes))
        engine.close()


if __name__ == "__main__":
    main()
