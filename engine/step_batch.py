"""What a step computes, from chunks of sequences to tokens and slots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from engine.batch import Batch, Reading, Segment, SharedPrefix, key_view, write_spans
from engine.blocks import BLOCK_SIZE
from engine.shared_prefix import Reader, shared_prefixes
from engine.step_plan import Chunk

SHARED_COLUMNS = 1536
"""Slots that must be read less for a prefix to be read together: measured on two AVX-512 cores, where the copies of
scores that it takes made a draw of 512 shared slots for four sequences."""


def in_reading_order(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Decodes by what they read, those that begin with the same slots side by side; then all longer chunks."""
    return sorted(chunks, key=lambda chunk: (chunk.n_tokens > 1, chunk.sequence.tables[0].runs()))


def make_batch(chunks: Sequence[Chunk], n_groups: int, reading: Reading, *, shares_prefixes: bool) -> Batch:
    """The batch of a step. shares_prefixes: whether attention can read a prefix once for decodes side by side."""
    tokens: list[int] = []
    positions: list[int] = []
    output_rows: list[int] = []
    for chunk in chunks:
        stop = chunk.start + chunk.n_tokens
        tokens.extend(chunk.sequence.token_ids[chunk.start : stop])
        tokens.extend(chunk.draft)
        positions.extend(range(chunk.start, stop))
        if chunk.samples:
            output_rows.extend(range(len(tokens) - 1 - len(chunk.draft), len(tokens)))
    return Batch(
        tokens=np.array(tokens, np.int32),
        positions=np.array(positions, np.int32),
        groups=tuple(_segments(chunks, group, reading, shares_prefixes=shares_prefixes) for group in range(n_groups)),
        output_rows=tuple(output_rows),
    )


def _segments(chunks: Sequence[Chunk], group: int, reading: Reading, *, shares_prefixes: bool) -> tuple[Segment, ...]:
    runs = [chunk.sequence.tables[group].runs() for chunk in chunks]
    shared: dict[int, SharedPrefix] = {}
    decodes = [index for index, chunk in enumerate(chunks) if chunk.n_tokens == 1]
    n_beginnings = len({runs[index][0].first_block for index in decodes})
    if shares_prefixes and n_beginnings < len(decodes):
        readers = [Reader(runs[index], chunks[index].start) for index in decodes]
        for prefix in shared_prefixes(readers, BLOCK_SIZE, reading, min_positions=BLOCK_SIZE):
            members = tuple(decodes[member] for member in prefix.members)
            are_neighbours = members[-1] - members[0] == len(members) - 1  # their queries must lie side by side
            if are_neighbours and (len(members) - 1) * prefix.n_positions >= SHARED_COLUMNS:
                shared.update(dict.fromkeys(members, prefix._replace(members=members)))
    segments = []
    for index, chunk in enumerate(chunks):
        own = shared.get(index)
        stop = chunk.start + chunk.n_tokens
        segments.append(
            Segment(
                start=chunk.start,
                n_tokens=chunk.n_tokens,
                writes=write_spans(runs[index], BLOCK_SIZE, chunk.start, chunk.n_tokens),
                keys=(
                    key_view(runs[index], BLOCK_SIZE, stop, reading)
                    if own is None
                    else own.rests[own.members.index(index)]
                ),
                shared=own,
            )
        )
    return tuple(segments)
