"""The comparison of two models' predictions, against numpy and llama_decode."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.tokenizer import Tokenizer
from models.errors import QuantizeError
from models.quantization.plan import Compare
from models.quantization.quality import N_TOKENS, Differences, compare
from models.quantization.quality_text import TEXT
from models.quantization.quantize import measure_quality
from tests.reference import F16, LlamaDecode
from tests.tiny_gguf import write_tiny


def _softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits.astype(np.float64))
    return weights / weights.sum(axis=1, keepdims=True)


def test_the_figures_are_those_of_the_formulas() -> None:
    rng = np.random.default_rng(0)
    source, made = (rng.normal(0, 2, (11, 50)).astype(np.float32) for _ in range(2))
    following = rng.integers(0, 50, 11)
    p, q = _softmax(source), _softmax(made)
    differences = Differences()
    extra = np.zeros((1, 50), np.float32)  # what follows the last token of a text is not known
    differences.add(source[:6], made[:6], following[:6].tolist())
    differences.add(np.vstack([source[6:], extra]), np.vstack([made[6:], extra]), following[6:].tolist())
    result = differences.result()
    assert result.n_predictions == 11
    assert result.source_perplexity == pytest.approx(np.prod(p[np.arange(11), following]) ** (-1 / 11))
    assert result.made_perplexity == pytest.approx(np.prod(q[np.arange(11), following]) ** (-1 / 11))
    assert result.divergence == pytest.approx(np.mean(np.sum(p * np.log(p / q), axis=1)))
    assert result.agreement == np.mean(p.argmax(axis=1) == q.argmax(axis=1))


def test_large_logits_do_not_overflow() -> None:
    logits = np.array([[2000.0, 0.0, -2000.0]], np.float32)
    differences = Differences()
    differences.add(logits, logits, [0])
    assert differences.result()[:4] == (1.0, 1.0, 0.0, 1.0)


@pytest.mark.parametrize("value", [np.nan, np.inf, 5000.0])
def test_predictions_that_cannot_be_compared(value: float) -> None:
    """Of a damaged model: e^5000 is no number either."""
    source, made = np.zeros((1, 3), np.float32), np.array([[0, value, 0]], np.float32)
    differences = Differences()
    with np.errstate(invalid="ignore"):
        differences.add(source, made, [0])
    with pytest.raises(QuantizeError, match="of the quantized model cannot be compared"):
        differences.result()


def test_weights_need_not_fit_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is what models are quantized for."""
    path = write_tiny(tmp_path / "tiny.gguf", ff=128, context=64, tokenizer="gpt2")
    monkeypatch.setattr("engine.llama_context.available_memory", lambda: path.stat().st_size // 2)
    assert compare(Compare(path, path, 1), lambda _: None).n_predictions == 63


def test_two_files_in_a_process_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against llama_decode of the same tokens in this process."""
    paths = [
        write_tiny(tmp_path / f"{kind}.gguf", ff=128, context=600, tokenizer="gpt2", weight_type=kind)
        for kind in ("F32", "Q4_0")
    ]
    tokenizer = Tokenizer(str(paths[0]))
    tokens = tokenizer.encode_raw(TEXT)[:N_TOKENS]
    tokenizer.close()
    rows = []
    for path in paths:
        with LlamaDecode(path, n_ctx=N_TOKENS, kv_type=F16) as oracle:
            rows.append(_softmax(oracle.decode(tokens)[:-1]))
    p, q = rows
    places = np.arange(N_TOKENS - 1), np.array(tokens[1:])
    steps = []
    result = measure_quality(paths[0], paths[1], 1, steps.append)
    assert result.n_predictions == N_TOKENS - 1
    assert result.source_perplexity == pytest.approx(np.exp(-np.log(p[places]).mean()), rel=0.02)
    assert result.made_perplexity == pytest.approx(np.exp(-np.log(q[places]).mean()), rel=0.02)
    assert result.divergence == pytest.approx(np.sum(p * np.log(p / q), axis=1).mean(), rel=0.1)
    assert 0 < result.agreement < 1
    assert steps == [(0, N_TOKENS, "predictions")]
    monkeypatch.setattr("models.quantization.quality._LOGITS", 100 * 4 * tokenizer.n_vocab)
    same = compare(Compare(paths[0], paths[0], 1), steps.append)
    assert [step.done for step in steps[1:]] == list(range(0, N_TOKENS, 100))
    assert (same.divergence, same.agreement) == (0.0, 1.0)
    assert same.made_perplexity == same.source_perplexity
