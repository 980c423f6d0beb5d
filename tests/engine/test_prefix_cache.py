"""The hash chain, who wins a block, and what is evicted first."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kv_manager import KvManager
from engine.prefix_cache import CachedBlock, HashFunction, PrefixCache, blake2b_16, block_digest
from engine.sequence import Priority, Request, Sequence

KEPT, FIRST_TO_GO = Priority.INTERACTIVE, Priority.BACKGROUND


def chain(cache: PrefixCache, tokens: str, blocks: list[int], retention: int = KEPT) -> list[CachedBlock]:
    """Publish one block for each letter, and release them tail first, as a sequence does."""
    entries: list[CachedBlock] = []
    digest = b""
    for letter, block in zip(tokens, blocks, strict=True):
        digest = block_digest(digest, [ord(letter)], b"", blake2b_16)
        entries.append(cache.publish(entries[-1] if entries else None, digest, (ord(letter),), block, retention))
    for entry in reversed(entries):
        cache.retire(entry.block)
    return entries


def test_a_digest_depends_on_everything_before_the_block() -> None:
    base = block_digest(b"", (1, 2), b"model", blake2b_16)
    assert len(base) == 16
    different = {
        block_digest(b"", (1, 2), b"model", blake2b_16),
        block_digest(b"", (2, 1), b"model", blake2b_16),
        block_digest(b"", (1, 2), b"other model", blake2b_16),
        block_digest(base, (1, 2), b"model", blake2b_16),
    }
    assert len(different) == 4
    assert base in different


def test_eviction_goes_from_the_tail_to_the_head_of_the_oldest() -> None:
    cache = PrefixCache(2)
    chain(cache, "abc", [0, 1, 2])
    chain(cache, "xy", [3, 4])
    assert [cache.evict() for _ in range(5)] == [2, 1, 0, 4, 3]


def test_eviction_takes_the_worst_retention_class_first() -> None:
    cache = PrefixCache(2)
    chain(cache, "ab", [0, 1])
    chain(cache, "xy", [2, 3], FIRST_TO_GO)
    assert [cache.evict() for _ in range(4)] == [3, 2, 1, 0]


def test_a_shared_head_outlives_its_last_tail() -> None:
    cache = PrefixCache(2)
    [head, *_] = chain(cache, "ab", [0, 1])
    cache.hold(0)
    branch = cache.publish(head, b"branch", (7,), 2, KEPT)
    cache.retire(branch.block)
    cache.retire(head.block)
    assert [cache.evict() for _ in range(3)] == [1, 2, 0]


def test_the_first_block_of_a_content_wins() -> None:
    cache = PrefixCache(2)
    winner = cache.publish(None, b"d", (1,), 0, KEPT)
    assert cache.publish(None, b"d", (1,), 1, KEPT) is winner
    assert not cache.is_published(1)
    assert not cache.retire(1), "nobody can find the loser, so it is free"


def test_a_collision_is_a_miss() -> None:
    cache = PrefixCache(2)
    a = cache.publish(None, b"same", (1,), 0, KEPT)
    b = cache.publish(None, b"same", (2,), 1, KEPT)
    assert not b.published
    assert cache.find(None, b"same", (1,)) is a
    assert cache.find(None, b"same", (2,)) is None
    assert cache.find(a, b"same", (1,)) is None, "the parent decides, not only the tokens"
    assert not cache.publish(b, b"child", (3,), 2, KEPT).published, "nobody could find its parent"


def test_what_only_an_evicted_block_leads_to_is_forgotten_with_it() -> None:
    cache = PrefixCache(2)
    parent = cache.publish(None, b"p", (1,), 0, KEPT)
    child = cache.publish(parent, b"c", (2,), 1, KEPT)
    cache.retire(0)
    assert cache.evict() == 0
    assert not child.published
    assert not cache.retire(1)


@pytest.mark.parametrize("hash_function", [blake2b_16, lambda data: bytes([blake2b_16(data)[0] % 16])])
@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    prompts=st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=12), min_size=2, max_size=8),
    block_size=st.integers(1, 4),
)
def test_a_look_up_finds_the_longest_common_prefix(
    hash_function: HashFunction, prompts: list[list[int]], block_size: int
) -> None:
    """Against the definition: what an earlier prompt begins with, and at most all tokens but one."""
    kv = KvManager(n_blocks=100, block_size=block_size, hash_function=hash_function)
    seen: list[list[int]] = []
    for number, prompt in enumerate(prompts):
        sequence = Sequence(number, number, 0, Request(tuple(prompt)), list(prompt), ())
        kv.open(sequence)
        found = kv.lookup(sequence)
        common = max(n for n in range(len(prompt)) if n == 0 or any(other[:n] == prompt[:n] for other in seen))
        kv.adopt(sequence, found)
        if hash_function is blake2b_16:
            assert sequence.n_computed == common
        else:
            assert sequence.n_computed <= common, "collisions may only cost hits"
        n_new = len(prompt) - sequence.n_computed
        kv.grow(sequence, n_new)
        sequence.n_computed += n_new
        kv.publish(sequence)
        for i, entry in enumerate(found.chains[0]):
            assert entry.tokens == tuple(prompt[i * block_size : (i + 1) * block_size])
        sequence.token_ids.append(0)  # drawn, so that everything else may be computed
        kv.check_integrity([sequence])
        kv.release(sequence)
        seen.append(prompt)


def test_every_group_must_have_a_block() -> None:
    kv = KvManager(n_blocks=4, block_size=1, n_groups=2)
    first = Sequence(1, 1, 0, Request((5, 6, 7)), [5, 6, 7], ())
    kv.open(first)
    kv.grow(first, 3)
    first.n_computed = 3
    kv.publish(first)
    kv.release(first)
    again = Sequence(2, 2, 0, Request((5, 6, 7)), [5, 6, 7], ())
    kv.open(again)
    assert kv.lookup(again).n_blocks == 2
    for _ in range(2):
        kv.groups[1].cache.evict()
    assert kv.lookup(again).n_blocks == 1
