"""What a comparison comes to in words: one sentence that claims no more than was measured."""

from __future__ import annotations

from collections.abc import Sequence

from app.compare.results import RawFigure, Results
from app.compare.session_results import SessionFigure
from app.compare.statistics import Ratio, Verdict
from engine.printable import one_line


def conclusion(results: Results, base: str) -> str:
    """About every lane but `base`, the one that they are compared with."""
    lanes = [figure.lane for figure in results.session if figure.lane != base]
    lanes += [figure.lane for row in results.raw for figure in row.lanes if figure.lane != base]
    sentences = [_about(lane, base, results) for lane in dict.fromkeys(lanes)]
    return " ".join(filter(None, sentences)) or "There is nothing to compare: fewer than two lanes were measured."


def _about(lane: str, base: str, results: Results) -> str:
    sessions = {figure.lane: figure for figure in results.session}
    parts = []
    if lane in sessions and base in sessions:
        parts.append(_session_part(sessions[lane], sessions[base]))
    raw = [(row.test, figure) for row in results.raw for figure in row.lanes if figure.lane == lane]
    if any(figure.ratio for _, figure in raw):
        parts.append(_raw_part(lane, raw, is_first=not parts))
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _session_part(ours: SessionFigure, theirs: SessionFigure) -> str:
    assert ours.ratio is not None
    lane, base = one_line(ours.lane), one_line(theirs.lane)
    text = (
        f"in this session {lane} gave one user {ours.tokens_per_s.median:,.1f} tokens per second and {base} "
        f"{theirs.tokens_per_s.median:,.1f}, {_in_words(ours.ratio)}"
    )
    if ours.computed_tokens is not None and theirs.computed_tokens is not None:
        text += f"; of the prompts it computed {ours.computed_tokens:,} tokens and {base} {theirs.computed_tokens:,}"
    if ours.guessed_tokens:
        text += f"; prompt lookup guessed {ours.guessed_tokens:,} of its {ours.generated_tokens:,} tokens"
    return text


def _in_words(ratio: Ratio) -> str:
    if ratio.low is None or ratio.high is None:
        return f"a ratio of {ratio.value:.2f} from {Verdict.UNKNOWN.replace('to say', 'to say more')}"
    interval = f"{ratio.low:.2f} to {ratio.high:.2f} with 95% confidence"
    if ratio.verdict is Verdict.NO_DIFFERENCE:
        return f"which is no difference ({interval})"
    return f"{ratio.value:.2f} times as many ({interval})"


def _raw_part(lane: str, figures: Sequence[tuple[str, RawFigure]], *, is_first: bool) -> str:
    by_verdict: dict[Verdict, list[str]] = {}
    for test, figure in figures:
        if figure.ratio:
            by_verdict.setdefault(figure.ratio.verdict, []).append(f"{test} ({figure.ratio.value:.2f})")
    words = {
        Verdict.FASTER: "faster in",
        Verdict.SLOWER: "slower in",
        Verdict.NO_DIFFERENCE: "not different in",
        Verdict.UNKNOWN: "measured too few times to say in",
    }
    found = [f"{words[verdict]} {_listed(by_verdict[verdict])}" for verdict in words if verdict in by_verdict]
    subject = f"{one_line(lane)}'s" if is_first else "its"
    return f"{subject} raw speed is {', '.join(found)}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
