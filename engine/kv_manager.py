"""Moves sequences in, through and out of the KV pool: finds prefixes, grows, compacts, publishes, forks, releases.

The one place where block tables, allocators and prefix caches of all KV groups change together. A KV group is
the set of layers with the same window class and row width; a prefix is known only if every group has its blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import NamedTuple

from engine.blocks import BLOCK_SIZE, BlockAllocator, BlockCopy, BlockTable
from engine.compaction import CompactionPolicy, Move, can_pay, choose_move, displaced, moved
from engine.prefix_cache import CachedBlock, HashFunction, PrefixCache, blake2b_16, block_digest
from engine.sequence import Priority, Sequence

SKIP = 4
"""A growing sequence may skip a quarter of its length to stay in one stretch (KvLayout.reading merges up to 1.3)."""


class KnownPrefix(NamedTuple):
    """The longest cached beginning of a sequence in full blocks: `n_blocks`, and their entries per KV group."""

    n_blocks: int
    chains: tuple[list[CachedBlock], ...]


class KvManager:
    """Owns the allocator and the prefix cache of every KV group; keeps `tables`, `hashes`, `chains` of sequences."""

    def __init__(
        self,
        *,
        n_blocks: int,
        block_size: int = BLOCK_SIZE,
        n_groups: int = 1,
        extra_key: bytes = b"",
        hash_function: HashFunction = blake2b_16,
        compaction: CompactionPolicy | None = None,
        commit_step: int | None = None,
    ) -> None:
        """Manage `n_blocks` blocks in each of `n_groups` groups; without a policy, no sequence is moved.

        extra_key: see `block_digest`. commit_step: see KvPool.commit_step; None if all memory is there at first.
        """
        self.n_blocks = n_blocks
        self.block_size = block_size
        self.groups = tuple(BlockAllocator(n_blocks, PrefixCache(len(Priority)), commit_step) for _ in range(n_groups))
        self._extra_key = extra_key
        self._hash = hash_function
        self._compaction = compaction

    @property
    def n_used(self) -> int:
        """Blocks that sequences refer to, over all groups."""
        return sum(group.n_used for group in self.groups)

    @property
    def n_cached_tokens(self) -> int:
        """Tokens in blocks that no sequence refers to, over all groups; walks them."""
        return sum(group.cache.n_evictable_tokens for group in self.groups)

    def open(self, sequence: Sequence) -> None:
        """Give a new sequence its empty tables."""
        sequence.tables = tuple(BlockTable(self.block_size) for _ in self.groups)
        sequence.chains = tuple([] for _ in self.groups)

    def lookup(self, sequence: Sequence) -> KnownPrefix:
        """Find the longest chain of cached blocks, at most all tokens but one, so that one is always computed."""
        self._extend_hashes(sequence, len(sequence.token_ids) // self.block_size)
        chains = [self._longest_chain(group.cache, sequence) for group in self.groups]
        n_blocks = min(len(chain) for chain in chains)
        return KnownPrefix(n_blocks, tuple(chain[:n_blocks] for chain in chains))

    def blocks_needed(self, sequence: Sequence, prefix: KnownPrefix | None = None) -> int:
        """Blocks that must be available in each group until all known tokens of the sequence are computed.

        prefix: what it would start from; its cached blocks can then no longer be evicted, and count as needed.
        """
        n_blocks = -(-len(sequence.token_ids) // self.block_size)
        if prefix is None:
            return n_blocks - len(sequence.tables[0])
        n_cached = max(
            sum(group.ref_count(entry.block) == 0 for entry in chain)
            for group, chain in zip(self.groups, prefix.chains, strict=True)
        )
        return n_blocks - prefix.n_blocks + n_cached

    def can_allocate(self, n_blocks: int) -> bool:
        """Whether every group has `n_blocks` blocks to give."""
        return all(group.can_allocate(n_blocks) for group in self.groups)

    def adopt(self, sequence: Sequence, prefix: KnownPrefix) -> list[BlockCopy]:
        """Start a sequence from a known prefix: its blocks are shared, its tokens count as computed.

        So do the tokens behind them with which another cached block begins, at most all but one. Blocks for the other
        known tokens, which will be needed soon, are evicted now and together. Returns the copies to do before anything
        is written: of a block that begins like the sequence's next one, and goes on otherwise.
        """
        for i, group in enumerate(self.groups):
            for entry in prefix.chains[i]:
                group.share(entry.block)
                group.cache.touch(entry, sequence.request.priority)
                entry.add_owner(sequence.request.owner)
                sequence.tables[i].append(entry.block)
            sequence.chains[i].extend(prefix.chains[i])
        sequence.n_computed = prefix.n_blocks * self.block_size
        sources = self._sources(sequence)
        n_blocks = self.blocks_needed(sequence)
        for group in self.groups:
            group.make_room(n_blocks)
        n_more = min((source.n_common(self._next_tokens(sequence)) for source in sources), default=0)
        copies = []
        for i, source in enumerate(sources):
            copies += self._begin_block(sequence, i, source, n_more)
        sequence.n_computed += n_more
        return copies

    def has_slots(self, sequence: Sequence, n_tokens: int) -> bool:
        """Whether the next `n_tokens` tokens have slots already that nobody else reads: most decodes do."""
        stop = sequence.n_computed + n_tokens
        for group, table in zip(self.groups, sequence.tables, strict=True):
            if stop > len(table) * self.block_size or self._must_copy(group, table, sequence.n_computed):
                return False
        return True

    def capacity(self, sequence: Sequence, *, evicting: bool = True) -> int:
        """How many more tokens of the sequence have, or could be given, slots now; maybe without an eviction."""
        capacities = []
        for group, table in zip(self.groups, sequence.tables, strict=True):
            n_blocks = group.n_available if evicting else group.n_free
            n_blocks -= self._must_copy(group, table, sequence.n_computed)
            slots = len(table) * self.block_size - sequence.n_computed
            capacities.append(slots + n_blocks * self.block_size if n_blocks >= 0 else 0)
        return min(capacities)

    def grow(self, sequence: Sequence, n_tokens: int) -> list[BlockCopy]:
        """Give the next `n_tokens` tokens slots that nobody else reads; at most `capacity(sequence)`.

        Returns the copies to do before anything is written: a partial last block that is shared with a fork.
        """
        copies = []
        n_blocks = -(-(sequence.n_computed + n_tokens) // self.block_size)
        for index, (group, table) in enumerate(zip(self.groups, sequence.tables, strict=True)):
            if self._must_copy(group, table, sequence.n_computed):
                [target] = group.allocate(1)
                [source] = table.truncate(len(table) - 1)
                table.append(target)
                group.release(source)
                copies.append(BlockCopy(index, source, target))
            if n_blocks > len(table):
                table.extend(
                    group.allocate(
                        n_blocks - len(table),
                        after=table.last,
                        reach=len(table) // SKIP,
                        n_expected=self.blocks_needed(sequence),
                    )
                )
        return copies

    def compact(self, sequence: Sequence) -> list[BlockCopy]:
        """Move a sequence that decodes, and has a slot for its next token, into consecutive blocks where that pays.

        Returns the copies to do before anything is written. Until the sequence publishes again, its full blocks can
        be found where they were: they hold what they should even if the copies fail.
        """
        policy = self._compaction
        if policy is None or sequence.n_computed < sequence.compact_from:
            return []
        if all(table.n_runs == 1 for table in sequence.tables):
            return []
        sequence.compact_from = sequence.n_computed + policy.interval
        n_steps = policy.payback_steps
        if sequence.request.max_tokens is not None:
            n_steps = min(n_steps, sequence.request.max_tokens - sequence.n_generated)
        copies: list[BlockCopy] = []
        for index, table in enumerate(sequence.tables):
            if can_pay(table, sequence.n_computed + 1, n_steps, policy):
                move = self._best_move(sequence, index, n_steps, policy)
                if move is not None:
                    copies += self._move(sequence, index, move)
        return copies

    def trim(self, sequence: Sequence, n_tokens: int) -> None:
        """Give back the blocks behind the first `n_tokens` tokens, which nobody else refers to."""
        for group, table in zip(self.groups, sequence.tables, strict=True):
            for block in reversed(table.truncate(-(-n_tokens // self.block_size))):
                group.release(block)

    def publish(self, sequence: Sequence) -> None:
        """Offer the blocks that became full to all sequences. Call it after `n_computed` grew."""
        n_full = sequence.n_computed // self.block_size
        if all(len(chain) == n_full and (not chain or chain[-1].published) for chain in sequence.chains):
            return
        self._extend_hashes(sequence, n_full)
        for group, table, chain in zip(self.groups, sequence.tables, sequence.chains, strict=True):
            # Where another block was first, but is evicted by now or used by nobody, ours takes its place.
            while chain and not chain[-1].published:
                chain.pop()
            for i, entry in enumerate(chain):
                group.stand_in(entry, table[i], sequence.request.priority)
            for i in range(len(chain), n_full):
                entry = group.cache.publish(
                    parent=chain[-1] if chain else None,
                    digest=sequence.hashes[i],
                    tokens=self._block_tokens(sequence, i),
                    block=table[i],
                    retention=sequence.request.priority,
                    owner=sequence.request.owner,
                )
                if entry.published:
                    group.drop_redundant_tails(entry)
                chain.append(entry)

    def fork(self, source: Sequence, target: Sequence) -> None:
        """Let `target`, which has the same tokens, share all blocks of `source`, the partial last one included."""
        for i, group in enumerate(self.groups):
            for block in source.tables[i]:
                group.share(block)
                target.tables[i].append(block)
            target.chains[i].extend(source.chains[i])
        target.hashes = source.hashes.copy()
        target.n_computed = source.n_computed

    def release(self, sequence: Sequence, *, is_intact: bool = True) -> None:
        """Drop all references of a sequence, from the tail to the head; its blocks stay cached.

        is_intact: False if its last step failed, so that nobody knows what its last block holds.
        """
        for index, table in enumerate(sequence.tables):
            if is_intact and sequence.n_computed % self.block_size:
                self._publish_tail(sequence, index)
            blocks = table.truncate(0)
            self._release_blocks(sequence, index, blocks, kept=())
            sequence.chains[index].clear()

    def check_integrity(self, live: Iterable[Sequence]) -> None:
        """Assert that the tables of the live sequences account for every block; walks everything."""
        live = list(live)
        for index, group in enumerate(self.groups):
            group.check_integrity(sequence.tables[index] for sequence in live)
        for sequence in live:
            for table, chain in zip(sequence.tables, sequence.chains, strict=True):
                assert len(table) * self.block_size >= sequence.n_computed
                assert len(chain) == sequence.n_computed // self.block_size
                assert all(entry.tokens == self._block_tokens(sequence, i) for i, entry in enumerate(chain))

    def _next_tokens(self, sequence: Sequence) -> tuple[int, ...]:
        """What follows the computed tokens, which fill their blocks: a block of tokens, or all known ones but one."""
        return self._block_tokens(sequence, sequence.n_computed // self.block_size)[: sequence.n_remaining - 1]

    def _sources(self, sequence: Sequence) -> list[CachedBlock]:
        """In each KV group the entry that begins with most of what follows; empty if one group has none."""
        tokens = self._next_tokens(sequence)
        sources = []
        for group, chain in zip(self.groups, sequence.chains, strict=True):
            source = group.cache.longest_match(chain[-1] if chain else None, tokens)
            if source is None:
                return []
            sources.append(source)
        return sources

    def _begin_block(self, sequence: Sequence, index: int, source: CachedBlock, n_tokens: int) -> list[BlockCopy]:
        """Give a sequence a block of its own that begins with the first `n_tokens` tokens of `source`."""
        group, table = self.groups[index], sequence.tables[index]
        n_needed = self.blocks_needed(sequence)
        if n_tokens == len(source.tokens) and source.published and not group.ref_count(source.block):
            group.take_over(source)
            table.append(source.block)
            return []
        group.cache.touch(source, sequence.request.priority)
        [block] = group.allocate(1, after=table.last, reach=len(table) // SKIP, n_expected=n_needed)
        table.append(block)
        # Where no other block was free, the source itself was evicted and is the sequence's now.
        return [BlockCopy(index, source.block, block)] if block != source.block else []

    def _publish_tail(self, sequence: Sequence, index: int) -> None:
        """Offer the last block, which is not full, unless a fork goes on writing to it."""
        group, chain = self.groups[index], sequence.chains[index]
        parent, block = chain[-1] if chain else None, sequence.tables[index][len(chain)]
        if group.is_shared(block):
            return
        tokens = tuple(sequence.token_ids[len(chain) * self.block_size : sequence.n_computed])
        known = group.cache.longest_match(parent, tokens)
        if known is not None and known.n_common(tokens) == len(tokens):
            group.cache.touch(known, sequence.request.priority)
            return
        before = sequence.hashes[len(chain) - 1] if chain else b""
        tail = group.cache.publish(
            parent=parent,
            digest=block_digest(before, tokens, self._extra_key, self._hash),
            tokens=tokens,
            block=block,
            retention=sequence.request.priority,
            owner=sequence.request.owner,
        )
        if tail.published:
            group.drop_redundant_tails(tail)

    def _best_move(self, sequence: Sequence, index: int, n_steps: int, policy: CompactionPolicy) -> Move | None:
        """Where to move a sequence, if it pays: into free blocks, or else into those that would be evicted next."""
        group, table = self.groups[index], sequence.tables[index]
        # Copies of our own of what others found first may lie before blocks that are shared.
        n_kept = max((i + 1 for i, block in enumerate(table) if group.is_shared(block)), default=0)
        n_moved = len(table) - n_kept
        for n_evicted in (0, n_moved):
            space = group.space(n_evicted)
            if n_moved > 0 and space.n_blocks > 0:
                move = choose_move(
                    table,
                    n_kept,
                    space,
                    group.run_start(space, n_moved),
                    n_positions=sequence.n_computed + 1,
                    n_steps=n_steps,
                    n_evicted=n_evicted,
                    policy=policy,
                )
                if move is not None:
                    return move
        return None

    def _move(self, sequence: Sequence, index: int, move: Move) -> list[BlockCopy]:
        group, table = self.groups[index], sequence.tables[index]
        copies = []
        for offset, (first_block, n_blocks) in displaced(table, move):
            group.allocate_stretch(move.start + offset, n_blocks)
            copies.append(BlockCopy(index, first_block, move.start + offset, n_blocks))
        blocks = list(table)
        after = moved(table, move)
        table.truncate(0)
        table.extend(after)
        self._release_blocks(sequence, index, blocks, kept=after)
        return copies

    def _release_blocks(self, sequence: Sequence, index: int, blocks: list[int], kept: Iterable[int]) -> None:
        """Drop a table's references to `blocks`, from the tail to the head, but for those `kept` at their place."""
        group, chain = self.groups[index], sequence.chains[index]
        for i, (block, block_after) in reversed(list(enumerate(itertools.zip_longest(blocks, kept)))):
            if block != block_after:
                group.release(block)
            if i < len(chain) and chain[i].block != block:
                # Our own block was a duplicate, but the later ones hang on the winner: it must outlive them.
                group.cache.touch(chain[i], sequence.request.priority)

    def _longest_chain(self, cache: PrefixCache, sequence: Sequence) -> list[CachedBlock]:
        chain: list[CachedBlock] = []
        for i in range((len(sequence.token_ids) - 1) // self.block_size):
            parent = chain[-1] if chain else None
            entry = cache.find(parent, sequence.hashes[i], self._block_tokens(sequence, i))
            if entry is None:
                break
            chain.append(entry)
        return chain

    def _must_copy(self, group: BlockAllocator, table: BlockTable, n_computed: int) -> bool:
        """Whether the next token goes into a block that a fork also refers to."""
        return n_computed % self.block_size != 0 and group.is_shared(table[n_computed // self.block_size])

    def _extend_hashes(self, sequence: Sequence, n_blocks: int) -> None:
        for i in range(len(sequence.hashes), n_blocks):
            parent = sequence.hashes[-1] if sequence.hashes else b""
            tokens = self._block_tokens(sequence, i)
            sequence.hashes.append(block_digest(parent, tokens, self._extra_key, self._hash))

    def _block_tokens(self, sequence: Sequence, index: int) -> tuple[int, ...]:
        return tuple(sequence.token_ids[index * self.block_size : (index + 1) * self.block_size])
