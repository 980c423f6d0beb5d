"""Which block holds the K and V of which tokens, after which other tokens.

The key of a block is a hash chain: digest(parent digest, token ids of the block, extra key), so that equal
tokens at another position, after another prefix or for another model are another block. A digest only finds
an entry; its token ids and its parent entry decide, so a collision costs a miss and never a wrong answer.

A sequence that ends leaves a block that is not full, its tail, which is an entry too. Nothing can follow a tail, and a
digest does not find it, as nobody knows where it ends: `longest_match` compares tokens, of tails and of full blocks.

Blocks belong to the allocator (engine/blocks.py). The cache owns the entries and the order in which blocks
that no sequence refers to are evicted: worst retention class first, then least recently released, tail before head.
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

HashFunction = Callable[[bytes], bytes]


def blake2b_16(data: bytes) -> bytes:
    """16 bytes of BLAKE2b."""
    return hashlib.blake2b(data, digest_size=16).digest()


def block_digest(parent: bytes, tokens: Sequence[int], extra_key: bytes, hash_function: HashFunction) -> bytes:
    """Digest of a block: its tokens, all tokens before it (`parent`, empty at the start), and the extra key.

    extra_key: whatever else the K and V depend on, such as the model file and the type of the cache.
    """
    return hash_function(parent + struct.pack(f"<{len(tokens)}i", *tokens) + extra_key)


@dataclass(eq=False, slots=True)
class CachedBlock:
    """The entry of one computed block, or of the tail of a sequence. Two are the same only if they are one object.

    tokens: of a tail, fewer than a block's.
    retention: class of the best request that made use of the block, 0 is kept longest.
    published: whether a look-up can find it; if it can, so can its parent.
    owners: of the requests that made use of it.
    """

    digest: bytes
    tokens: tuple[int, ...]
    parent: CachedBlock | None
    block: int
    retention: int
    owners: tuple[int, ...]
    published: bool = False
    children: set[CachedBlock] = field(default_factory=set, repr=False)

    def n_common(self, tokens: Sequence[int]) -> int:
        """How many tokens from the first on are the same."""
        both = zip(self.tokens, tokens, strict=False)
        return next((i for i, (own, other) in enumerate(both) if own != other), min(len(self.tokens), len(tokens)))

    def add_owner(self, owner: int) -> None:
        """A request of this owner makes use of it."""
        if owner not in self.owners:
            self.owners += (owner,)


class PrefixCache:
    """Entries by digest and by block, and the eviction order. Every operation is O(1) where it does not say otherwise.

    The order needs no search because sequences release their blocks from the tail to the head: a head that
    lost its last reference is always appended after its tail.
    """

    def __init__(self, n_retention_classes: int) -> None:
        self.n_evicted = 0
        self._by_digest: dict[bytes, CachedBlock] = {}
        self._by_block: dict[int, CachedBlock] = {}
        self._roots: set[CachedBlock] = set()
        """The published entries without a parent."""
        self._evictable: list[OrderedDict[CachedBlock, None]] = [OrderedDict() for _ in range(n_retention_classes)]

    @property
    def n_evictable(self) -> int:
        """Blocks that are cached and that no sequence refers to."""
        return sum(len(order) for order in self._evictable)

    @property
    def n_evictable_tokens(self) -> int:
        """Tokens in these blocks; walks them."""
        return sum(len(entry.tokens) for order in self._evictable for entry in order)

    def find(self, parent: CachedBlock | None, digest: bytes, tokens: tuple[int, ...]) -> CachedBlock | None:
        """The published entry of these tokens after this parent."""
        entry = self._by_digest.get(digest)
        if entry is not None and entry.parent is parent and entry.tokens == tokens:
            return entry
        return None

    def longest_match(self, parent: CachedBlock | None, tokens: Sequence[int]) -> CachedBlock | None:
        """The published entry after this parent that begins with most of `tokens`, of equals the shortest.

        None if no entry begins with the first of them. O(entries after this parent).
        """
        matches = ((entry.n_common(tokens), -len(entry.tokens), entry) for entry in self._siblings(parent))
        n_common, _, entry = max(matches, key=lambda match: match[:2], default=(0, 0, None))
        return entry if n_common else None

    def redundant_tails(self, entry: CachedBlock) -> list[CachedBlock]:
        """The tails with which an entry begins. O(entries after its parent)."""
        return [
            tail
            for tail in self._siblings(entry.parent)
            if tail.n_common(entry.tokens) == len(tail.tokens) < len(entry.tokens)
        ]

    def entry_of(self, block: int) -> CachedBlock | None:
        """The entry that this block stands for."""
        return self._by_block.get(block)

    def publish(
        self,
        parent: CachedBlock | None,
        digest: bytes,
        tokens: tuple[int, ...],
        block: int,
        retention: int,
        owner: int = 1,
    ) -> CachedBlock:
        """Offer a full, computed block, or a tail, to everyone and return the entry of its content.

        The first block of a content wins: a later one gets the winner's entry and stays private. The entry
        stays unpublished if its digest is taken by other content, or if its parent is unpublished.
        """
        entry = self.find(parent, digest, tokens)
        if entry is not None:
            entry.add_owner(owner)
            return entry
        entry = CachedBlock(digest, tokens, parent, block, retention, (owner,))
        if digest not in self._by_digest and (parent is None or parent.published):
            entry.published = True
            self._by_digest[digest] = self._by_block[block] = entry
            self._siblings(parent).add(entry)
        return entry

    def hold(self, block: int) -> None:
        """A cached block got its first reference: it cannot be evicted now."""
        entry = self._by_block[block]
        del self._evictable[entry.retention][entry]

    def retire(self, block: int) -> bool:
        """A block lost its last reference: it may be evicted, after all others of its class.

        False if it was never published; nobody can find it, so it is free.
        """
        entry = self._by_block.get(block)
        if entry is None:
            return False
        self._evictable[entry.retention][entry] = None
        return True

    def touch(self, entry: CachedBlock, retention: int) -> None:
        """A request of this class made use of the entry: raise its class, and if it is unreferenced, its place.

        Like releasing, this goes from the tail of a sequence to the head.
        """
        order = self._evictable[entry.retention]
        entry.retention = min(retention, entry.retention)
        if entry in order:
            del order[entry]
            self._evictable[entry.retention][entry] = None

    def next_evicted(self, n: int) -> list[int]:
        """The first `n` blocks that would be evicted, in that order."""
        entries = (entry for order in reversed(self._evictable) for entry in order)
        return [entry.block for entry in itertools.islice(entries, n)]

    def replace_block(self, entry: CachedBlock, block: int) -> int:
        """Let another block of the same content, which is in use, stand for an entry; returns the one before.

        No sequence may refer to the one before.
        """
        del self._evictable[entry.retention][entry]
        before, entry.block = entry.block, block
        del self._by_block[before]
        self._by_block[block] = entry
        return before

    def evict(self) -> int:
        """Forget the least valuable unreferenced block and return its id. There must be one."""
        order = next(order for order in reversed(self._evictable) if order)
        entry, _ = order.popitem(last=False)
        self._unpublish(entry)
        self.n_evicted += 1
        return entry.block

    def withdraw(self, tail: CachedBlock) -> None:
        """Forget a tail, whose block somebody takes over to go on with it. Nobody refers to it."""
        del self._evictable[tail.retention][tail]
        self._unpublish(tail)

    def _unpublish(self, entry: CachedBlock) -> None:
        """Take an entry out of the index, and with it those that only it leads to.

        These belong to running sequences that computed the evicted content themselves but came second;
        such a sequence publishes its own copies at the end of the step.
        """
        self._siblings(entry.parent).discard(entry)
        pending = [entry]
        while pending:
            lost = pending.pop()
            lost.published = False
            del self._by_digest[lost.digest], self._by_block[lost.block]
            pending += lost.children
            lost.children.clear()

    def _siblings(self, parent: CachedBlock | None) -> set[CachedBlock]:
        return self._roots if parent is None else parent.children

    def is_published(self, block: int) -> bool:
        """Whether a look-up can find this block, so that its slots must not be written."""
        return block in self._by_block

    def check_integrity(self, ref_counts: Sequence[int]) -> None:
        """Assert what must always hold; walks every entry."""
        assert len(self._by_digest) == len(self._by_block)
        for block, entry in self._by_block.items():
            assert entry.published
            assert entry.block == block
            assert self._by_digest[entry.digest] is entry
            assert (entry in self._evictable[entry.retention]) == (ref_counts[block] == 0)
            assert entry.parent is None or entry.parent.published
            assert entry in self._siblings(entry.parent)
        unreferenced = [entry for order in reversed(self._evictable) for entry in order]
        assert all(self._by_block[entry.block] is entry for entry in unreferenced)
        evicted: set[CachedBlock] = set()
        for entry in unreferenced:
            assert all(self._all_referenced_or_in(child, evicted) for child in entry.children), "head before tail"
            evicted.add(entry)

    def _all_referenced_or_in(self, entry: CachedBlock, evicted: set[CachedBlock]) -> bool:
        gone = entry in evicted or entry not in self._evictable[entry.retention]
        return gone and all(self._all_referenced_or_in(child, evicted) for child in entry.children)
