"""What KV in q8_0 costs in quality: perplexity of a text with the cache in f16 and in q8_0, side by side.

Usage: python scripts/perplexity.py [MODEL.gguf] [--text FILE] [--tokens 4096] [--window 1024] [--layout packed|rows]

Windows of the text are computed apart, in chunks that read from the cache what the chunks before stored. The first
half of a window is context, the predictions in its second half count. Beside perplexity: the mean Kullback-Leibler
divergence from the distribution in f16, and how often both have the same likeliest token. The second row, f16 in the
other layout, shows what a mere change in the order of additions does: products with quantized weights round their
inputs to 8 bits, so that the smallest difference grows. Only what goes beyond it is owed to q8_0.

Without a file the text is Python's own documentation as pydoc has it (pydoc_data.topics): plain technical English,
which depends on the version of Python. A model may have seen it; compare the rows, not the figure with others'.
"""

from __future__ import annotations

import contextlib
import math
import platform
from dataclasses import dataclass, field
from pathlib import Path
from pydoc_data.topics import topics

import click
import numpy as np
from numpy.typing import NDArray

from engine.attention_choice import AttentionChoice
from engine.batch import Batch, Segment, key_view, write_spans
from engine.blocks import BLOCK_SIZE, Run
from engine.config import KvType
from engine.devices import cpu_device
from engine.forward import Forward
from engine.gguf_file import GgufFile
from engine.kv_pool import KvLayout, KvPool
from engine.plan import ModelPlan
from engine.threads import usable_cores
from engine.tokenizer import Tokenizer
from engine.weights import Weights
from models.locate import locate


class Lane:
    """Forward passes of one sequence over a pool of its own, whose blocks are one run."""

    def __init__(
        self, plan: ModelPlan, weights: Weights, layout: KvLayout, kv_type: KvType, *, window: int, chunk: int
    ) -> None:
        device = cpu_device()
        self._run = Run(0, -(-window // BLOCK_SIZE))
        self._reading = layout.reading
        self._n_groups = len(plan.kv_groups)
        self._pool = KvPool(plan.kv_groups, self._run.n_blocks, BLOCK_SIZE, layout, device, kv_type)
        self._forward = Forward(
            plan,
            weights,
            self._pool,
            device,
            n_threads=usable_cores(),
            max_sequences=1,
            max_tokens=chunk,
            choice=AttentionChoice(),
        )
        types = self._pool.types
        self.name = f"k {types.k}, v {types.v}, {layout.value}"
        self.score = Score()

    def log_probabilities(self, tokens: NDArray[np.int32], start: int) -> NDArray[np.float64]:
        """Compute `tokens` at position `start`; of each, the distribution of its successor, [n, vocabulary]."""
        n = len(tokens)
        segment = Segment(
            start,
            n,
            write_spans([self._run], BLOCK_SIZE, start, n),
            key_view([self._run], BLOCK_SIZE, start + n, self._reading),
        )
        positions = np.arange(start, start + n, dtype=np.int32)
        logits = self._forward.run(Batch(tokens, positions, ((segment,),) * self._n_groups, tuple(range(n))))
        assert logits is not None
        shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
        return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))

    def close(self) -> None:
        self._forward.close()
        self._pool.close()


@dataclass
class Score:
    """Of each prediction that counts: nats lost, divergence from f16 in nats, same first choice as in f16."""

    nats: list[float] = field(default_factory=list)
    divergence: list[float] = field(default_factory=list)
    same: list[bool] = field(default_factory=list)

    def add(self, own: NDArray[np.float64], f16: NDArray[np.float64], following: NDArray[np.int32]) -> None:
        """Logarithms of two distributions [n, vocabulary], and the tokens [n] that the text has."""
        self.nats += (-own[np.arange(len(following)), following]).tolist()
        self.divergence += (np.exp(f16) * (f16 - own)).sum(axis=1).tolist()
        self.same += (f16.argmax(axis=1) == own.argmax(axis=1)).tolist()

    def row(self, f16: Score) -> str:
        """Figures beside those of f16; the error is the standard error of the mean."""
        more = np.array(self.nats) - np.array(f16.nats)
        error = float(more.std()) / math.sqrt(len(more))
        return (
            f"{math.exp(np.mean(self.nats)):12.4f}{math.exp(more.mean()):10.4f} ± {error:.4f}"
            f"{np.mean(self.divergence):12.5f}{np.mean(self.same):12.2%}"
        )


@click.command(help=__doc__)
@click.argument("model", required=False)
@click.option("--text", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A text file in UTF-8.")
@click.option("--tokens", default=4096, help="Of the text, from its beginning.")
@click.option("--window", default=1024, help="Tokens that know of each other.")
@click.option("--chunk", default=32, help="Tokens per step; from 64 on, other operations attend.")
@click.option("--layout", type=click.Choice([layout.value for layout in KvLayout]), default=KvLayout.PACKED.value)
def main(model: str | None, text: Path | None, tokens: int, window: int, chunk: int, layout: str) -> None:
    path = locate(model)
    tokenizer = Tokenizer(str(path))
    begin = tokenizer.encode_raw("")
    words = text.read_text("utf-8") if text else "\n".join(topics[name] for name in sorted(topics))
    ids = tokenizer.encode_raw(words)[len(begin) :][:tokens]
    tokenizer.close()
    step = window - len(begin)
    windows = [
        np.array([*begin, *ids[first : first + step]], np.int32) for first in range(0, len(ids) - step + 1, step)
    ]
    if not windows:
        raise click.UsageError(f"The text has {len(ids):,} tokens, fewer than one window: use a smaller --window.")
    source = text or f"Python {platform.python_version()}'s pydoc topics"
    print(f"{path.name}, {source}: {len(windows)} windows of {window:,} tokens in chunks of {chunk}, layout {layout}")
    file = GgufFile.open(path)
    plan = ModelPlan.from_gguf(file)
    own = KvLayout(layout)
    (other,) = set(KvLayout) - {own}
    with contextlib.ExitStack() as stack:
        weights = stack.enter_context(
            contextlib.closing(Weights(file, plan, cpu_device(), lambda _fraction: None, copied=False))
        )
        lanes = [
            stack.enter_context(contextlib.closing(Lane(plan, weights, order, kv_type, window=window, chunk=chunk)))
            for order, kv_type in ((own, KvType.F16), (other, KvType.F16), (own, KvType.Q8_0))
        ]
        for known in windows:
            for start in range(0, window, chunk):
                part = known[start : start + chunk]
                rows = [lane.log_probabilities(part, start) for lane in lanes]
                counted = slice(max(0, window // 2 - start), min(len(part), window - 1 - start))
                following = known[start + 1 :][counted]
                for lane, own_rows in zip(lanes, rows, strict=True):
                    lane.score.add(own_rows[counted], rows[0][counted], following)
        print(f"{'cache':24}{'perplexity':>12}{'ratio to the first':>19}{'KL, nats':>12}{'same choice':>12}")
        for lane in lanes:
            print(f"{lane.name:24}{lane.score.row(lanes[0].score)}")
        print(f"over {len(lanes[0].score.nats):,} predictions")


if __name__ == "__main__":
    main()
