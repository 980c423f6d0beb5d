"""The lookup against one that searches the whole text each time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.prompt_lookup import LONGEST, NGRAMS, PromptLookup

texts = st.lists(st.integers(0, 2), max_size=40)


def search(text: list[int]) -> tuple[int, int]:
    """Index behind the latest earlier occurrence of the longest n-gram at the end, and tokens that match before it."""
    for n in NGRAMS:
        for stop in range(len(text) - 1, n - 1, -1):
            if len(text) > n and text[stop - n : stop] == text[-n:]:
                matched = 0
                while matched < min(stop, LONGEST) and text[stop - 1 - matched] == text[-1 - matched]:
                    matched += 1
                return stop, matched
    return 0, 0


def continuation(text: list[int], source: int, n_tokens: int) -> tuple[int, ...]:
    """What follows from `source` on, where the text is thought to go on with that very continuation."""
    longer = text.copy()
    for i in range(n_tokens):
        longer.append(longer[source + i])
    return tuple(longer[len(text) :])


@settings(derandomize=True, max_examples=400, deadline=None)
@given(text=texts, pieces=st.lists(st.integers(1, 5), max_size=40), n_draft=st.integers(1, 9))
def test_drafts_are_what_followed_before(text: list[int], pieces: list[int], n_draft: int) -> None:
    """Taken in whole or piece by piece: the place moves along while it is right, and is looked up when it is not."""
    known: list[int] = []
    lookup = PromptLookup(known)
    place, matched = 0, 0
    for piece in [*pieces, len(text)]:
        added = text[len(known) : len(known) + piece]
        for token in added:
            if matched and known[place] == token:
                place, matched = place + 1, matched + 1
            else:
                matched = 0
            known.append(token)
        if added and not matched:
            place, matched = search(known)
        lookup.update()
        assert lookup.n_matched == matched
        expected = continuation(known, place, n_draft) if matched else ()
        assert lookup.draft(n_draft) == expected


def test_a_quotation_is_followed_to_its_end() -> None:
    """Inside it a passage occurs that goes on otherwise elsewhere, and later: the longer match decides."""
    passage = [7, 8, 9]
    text = [*range(20, 30), *passage, *range(30, 40), 5, *passage, 6, 1, *range(20, 30)]
    lookup = PromptLookup(text)
    lookup.update()
    for token in passage:
        text.append(token)
        lookup.update()
    assert lookup.draft(4) == (30, 31, 32, 33)


def test_after_an_edit_the_quotation_is_found_again() -> None:
    text = [*range(20), *range(5), 99]
    lookup = PromptLookup(text)
    lookup.update()
    assert lookup.draft(3) == ()
    for token in (6, 7):
        text.append(token)
        lookup.update()
    assert lookup.draft(3) == (8, 9, 10)


def test_what_has_a_period_goes_on_with_it() -> None:
    lookup = PromptLookup([4, 1, 2, 3, 1, 2, 3, 1, 2])
    lookup.update()
    assert lookup.draft(7) == (3, 1, 2, 3, 1, 2, 3)


def test_nothing_is_foretold_without_a_precedent() -> None:
    for text in ([], [1], [1, 2, 3, 4], [1, 2, 1]):
        lookup = PromptLookup(text)
        lookup.update()
        assert lookup.draft(5) == ()
