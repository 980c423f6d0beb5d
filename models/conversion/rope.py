"""Rotary position embedding: from the parameters in config.json to those of GGUF."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from engine.hyperparameters import MAX_ROPE_FACTOR
from engine.printable import quoted
from models.conversion.checkpoint import Config
from models.conversion.checkpoint_json import JsonObject
from models.errors import ConversionError

_FREQ_BASE = 10000.0
_BETA_FAST, _BETA_SLOW = 32.0, 1.0
"""YaRN's defaults, and all that llama.cpp knows for these architectures."""


class Yarn(NamedTuple):
    """YaRN (arXiv:2309.00071). context: tokens before the extension. magnitude: factor on the length of queries and
    keys, besides the 1 + 0.1·ln(factor) that ggml applies itself.
    """

    context: int
    magnitude: float


class ConvertedRope(NamedTuple):
    """Frequencies are freq_base^(-2i/n). factor: by which positions are divided (with YaRN, of slow frequencies).
    divisors: of the frequencies one by one, [head_dim / 2], or None.
    """

    freq_base: float
    factor: float = 1.0
    yarn: Yarn | None = None
    divisors: np.ndarray | None = None


def convert_rope(config: Config) -> ConvertedRope:
    """Derive the parameters. Raises ConversionError for a way of extending the context that GGUF cannot tell of."""
    values = config.values
    scaling = values.nested("rope_parameters" if values.has("rope_parameters") else "rope_scaling")
    base = scaling.number("rope_theta", values.number("rope_theta", _FREQ_BASE))
    kind = scaling.text("rope_type", scaling.text("type", "default"))
    if any(isinstance(value, dict) for value in scaling.values.values()):
        raise _unsupported("that differ from layer to layer")
    if any(source.number("partial_rotary_factor", 1.0) != 1.0 for source in (values, scaling)):
        raise _unsupported("that leave a part of each head unrotated")
    # "dynamic" changes nothing within the context that config.json names.
    if kind in ("default", "dynamic"):
        return ConvertedRope(base)
    if kind == "linear":
        return ConvertedRope(base, _factor(scaling))
    if kind == "yarn":
        return ConvertedRope(base, _factor(scaling), _yarn(scaling, config.context_train))
    if kind == "llama3" and config.family.architecture == "llama":
        return ConvertedRope(base, divisors=_llama3_divisors(scaling, base, config.head_dim))
    raise _unsupported(f"of type {quoted(kind)}")


def _yarn(scaling: JsonObject, context: int) -> Yarn:
    if (scaling.number("beta_fast", _BETA_FAST), scaling.number("beta_slow", _BETA_SLOW)) != (_BETA_FAST, _BETA_SLOW):
        raise _unsupported("of type 'yarn' with other limits than 32 and 1")
    factor = _factor(scaling)
    wanted = _magnitude(factor)
    if scaling.has("mscale") and scaling.has("mscale_all_dim"):
        wanted = _magnitude(factor, scaling.number("mscale")) / _magnitude(factor, scaling.number("mscale_all_dim"))
    wanted = scaling.number("attention_factor", wanted)
    return Yarn(scaling.whole("original_max_position_embeddings", context), wanted / _magnitude(factor))


def _magnitude(factor: float, scale: float = 1.0) -> float:
    return 1 + 0.1 * scale * math.log(factor)


def _llama3_divisors(scaling: JsonObject, base: float, head_dim: int) -> np.ndarray:
    """Llama 3.1's extension: slow frequencies are divided by the factor, fast ones kept, those between blended.

    Between is a wavelength of the original context divided by high_freq_factor to low_freq_factor.
    """
    low, high = scaling.number("low_freq_factor"), scaling.number("high_freq_factor")
    context = scaling.whole("original_max_position_embeddings")
    if low >= high:
        raise scaling.damaged("its 'low_freq_factor' is not below its 'high_freq_factor'")
    wavelengths = 2 * math.pi * base ** (np.arange(0, head_dim, 2) / head_dim)
    kept = np.clip((context / wavelengths - low) / (high - low), 0, 1)
    return np.asarray(1 / (kept + (1 - kept) / _factor(scaling)), np.float32)


def _factor(scaling: JsonObject) -> float:
    factor = scaling.number("factor")
    if not 1 <= factor <= MAX_ROPE_FACTOR:
        raise scaling.damaged(f"its rope scaling factor is {factor:g}")
    return factor


def _unsupported(what: str) -> ConversionError:
    return ConversionError(f"The checkpoint has rope parameters {what}, which GGUF cannot express for it.")
