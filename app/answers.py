"""The answers to one request: collected as they end, and described in figures."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from engine.messages import Finished
from engine.sequence import SequenceStats


class Figures(NamedTuple):
    """What the answers to one request cost together; None where nothing was measured.

    prefill_tok_s: prompt tokens computed per second. decode_tok_s: tokens of all answers per second, from the first
    token of any to the last. drafted/accepted: draft tokens that were verified / that became tokens of an answer.
    """

    prompt_tokens: int
    reused_tokens: int
    computed_tokens: int
    generated_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    ttft_s: float | None
    prefill_tok_s: float | None
    decode_tok_s: float | None


class Answers:
    """The finished answers to one request for `n` of them."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._finished: dict[int, Finished] = {}

    def add(self, answer: Finished) -> None:
        """Take an answer; they end in any order."""
        self._finished[answer.index] = answer

    @property
    def complete(self) -> bool:
        """Whether all have ended."""
        return len(self._finished) == self._n

    @property
    def in_order(self) -> list[Finished]:
        """The answers by index."""
        return [self._finished[index] for index in sorted(self._finished)]

    def figures(self) -> Figures:
        """The prompt is counted once, and its computation too."""
        return _figures([answer.stats for answer in self.in_order])

    def as_dict(self, engine: str, model: str) -> dict[str, Any]:
        """The object that `--json` prints: one value for one answer, lists for several."""
        answers = self.in_order
        one = self._n == 1
        figures = self.figures()
        token_ids = [list(answer.token_ids) for answer in answers]
        reasons = [str(answer.reason) for answer in answers]
        return {
            **({"text": answers[0].text} if one else {"texts": [answer.text for answer in answers]}),
            "token_ids": token_ids[0] if one else token_ids,
            **figures._asdict(),
            "finish_reason": reasons[0] if one else reasons,
            "engine": engine,
            "model": model,
            "kv": _kv(answers),
        }


def to_json(value: dict[str, Any]) -> str:
    """One line of ASCII: no character in it can act on a terminal or break a line, whatever a model wrote."""
    return json.dumps(value, ensure_ascii=True)


def _figures(stats: list[SequenceStats]) -> Figures:
    leader = max(stats, key=lambda one: one.computed_tokens)  # the one that ran the prompt for all
    begun = [one for one in stats if one.generated_tokens]
    generated = sum(one.generated_tokens for one in stats)
    ttft_s = min((one.ttft_s for one in begun), default=0.0)
    decode_s = max((one.ttft_s + one.decode_s for one in begun), default=0.0) - ttft_s
    return Figures(
        prompt_tokens=leader.prompt_tokens,
        reused_tokens=leader.reused_tokens,
        computed_tokens=sum(one.computed_tokens for one in stats),
        generated_tokens=generated,
        drafted_tokens=sum(one.drafted_tokens for one in stats),
        accepted_tokens=sum(one.accepted_tokens for one in stats),
        ttft_s=round(ttft_s, 4) if begun else None,
        prefill_tok_s=round(leader.computed_tokens / leader.prefill_s, 2) if leader.prefill_s else None,
        decode_tok_s=round((generated - 1) / decode_s, 2) if decode_s > 0 else None,
    )


def _kv(answers: list[Finished]) -> dict[str, int | str]:
    """The most that the answers held together, and the state of the engine's memory at the end."""
    kv = answers[-1].kv
    blocks_used = max(answer.stats.blocks_used for answer in answers)
    return {
        "block_size": kv.block_size,
        "blocks_used": blocks_used,
        "bytes_used": blocks_used * kv.block_bytes,
        "bytes_resident": kv.bytes_resident,
        "bytes_contiguous_would_reserve": kv.bytes_contiguous_would_reserve,
        "type_k": kv.type_k,
        "type_v": kv.type_v,
    }
