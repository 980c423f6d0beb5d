"""The types that llama.cpp's quantizer knows: what a file of each takes, and what it costs in quality."""

from __future__ import annotations

import difflib
from typing import NamedTuple

from engine.printable import quoted
from models.errors import QuantizeError


class FileType(NamedTuple):
    """A type of file, most of which mix several types of tensors.

    ftype: enum llama_ftype. base: the ggml type of most tensors. bits: per weight in a model of the shape of
    Llama 3.1 8B, by the quantizer's dry run without an importance matrix. added_perplexity: of Llama 3 8B against
    F16, as llama.cpp's quantize tool states it; None where it does not. needs_imatrix: refused without an importance
    matrix, as the result would be garbage.
    """

    name: str
    ftype: int
    base: str
    bits: float
    quality: str
    added_perplexity: float | None = None
    needs_imatrix: bool = False


_LESS_WITH_IMATRIX = "noticeable loss, less with imatrix"
_TERNARY = "only for ternary models"
_ONE_BIT = "only for models of one-bit weights"
_TWO_BITS = "only for models of two-bit weights"
_EXPERIMENTAL = "for experiments"
_LAST_RESORT = "large loss, when nothing else fits"

FILE_TYPES = (
    FileType("F32", 0, "f32", 32.00, "lossless, needlessly large"),
    FileType("F16", 1, "f16", 16.00, "practically lossless"),
    FileType("BF16", 32, "bf16", 16.00, "what most models are published in"),
    FileType("Q8_0", 7, "q8_0", 8.50, "practically lossless", 0.0026),
    FileType("Q6_K", 18, "q6_K", 6.56, "hardly any loss", 0.0217),
    FileType("Q5_K_M", 17, "q5_K", 5.70, "very small loss", 0.0569),
    FileType("Q5_K_S", 16, "q5_K", 5.57, "small loss", 0.1049),
    FileType("Q5_1", 9, "q5_1", 6.04, "small loss, larger than Q5_K_M", 0.1062),
    FileType("Q5_0", 8, "q5_0", 5.57, "small loss", 0.1316),
    FileType("Q4_K_M", 15, "q4_K", 4.89, "the usual choice: good for its size", 0.1754),
    FileType("Q4_K_S", 14, "q4_K", 4.67, "good, slightly smaller", 0.2689),
    FileType("IQ4_NL", 25, "iq4_nl", 4.68, "good; any rows of 32"),
    FileType("IQ4_XS", 30, "iq4_xs", 4.46, "good, the smallest of about 4 bits"),
    FileType("Q4_1", 3, "q4_1", 5.10, "noticeable loss, larger than Q4_K_M", 0.4511),
    FileType("Q4_0", 2, "q4_0", 4.64, "noticeable loss", 0.4685),
    FileType("MXFP4_MOE", 38, "mxfp4", 8.50, "for experts in MXFP4; rest is Q8_0"),
    FileType("Q3_K_L", 13, "q3_K", 4.30, "noticeable loss", 0.5562),
    FileType("Q3_K_M", 12, "q3_K", 4.00, "noticeable loss", 0.6569),
    FileType("IQ3_M", 27, "iq3_s", 3.76, _LESS_WITH_IMATRIX),
    FileType("IQ3_S", 26, "iq3_s", 3.66, _LESS_WITH_IMATRIX),
    FileType("Q3_K_S", 11, "q3_K", 3.64, "large loss", 1.6321),
    FileType("IQ3_XS", 22, "iq3_s", 3.50, "large loss", needs_imatrix=True),
    FileType("IQ3_XXS", 23, "iq3_xxs", 3.37, "large loss", needs_imatrix=True),
    FileType("Q2_K", 10, "q2_K", 3.16, _LAST_RESORT, 3.5199),
    FileType("Q2_K_S", 21, "q2_K", 2.97, _LAST_RESORT, 3.1836, needs_imatrix=True),
    FileType("IQ2_M", 29, "iq2_s", 2.93, _LAST_RESORT, needs_imatrix=True),
    FileType("IQ2_S", 28, "iq2_xs", 2.74, _LAST_RESORT, needs_imatrix=True),
    FileType("IQ2_XS", 20, "iq2_xs", 2.59, _LAST_RESORT, needs_imatrix=True),
    FileType("IQ2_XXS", 19, "iq2_xxs", 2.38, _LAST_RESORT, needs_imatrix=True),
    FileType("IQ1_M", 31, "iq1_m", 2.15, _EXPERIMENTAL, needs_imatrix=True),
    FileType("IQ1_S", 24, "iq1_s", 2.00, _EXPERIMENTAL, needs_imatrix=True),
    FileType("Q2_0", 41, "q2_0", 2.68, _TWO_BITS),
    FileType("TQ2_0", 37, "tq2_0", 2.52, _TERNARY),
    FileType("TQ1_0", 36, "tq1_0", 2.19, _TERNARY),
    FileType("Q1_0", 40, "q1_0", 1.48, _ONE_BIT),
)
"""All that llama_model_quantize knows, those that keep most first."""

_SHORT = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}

HARD_IMATRIX_TYPES = frozenset({"iq2_xxs", "iq2_xs", "iq1_s"})
"""Tensor types that ggml cannot compute at all without importances (ggml_quantize_requires_imatrix)."""

TENSOR_TYPES = tuple(sorted({file_type.base for file_type in FILE_TYPES} - HARD_IMATRIX_TYPES))
"""Types of tensors that can be asked for by name for the output and the embeddings."""


def find_type(name: str) -> FileType:
    """The type of that name in any case; Q4_K means Q4_K_M and so on. Raises QuantizeError."""
    wanted = _SHORT.get(name.upper(), name.upper())
    found = next((file_type for file_type in FILE_TYPES if file_type.name == wanted), None)
    if found:
        return found
    names = [file_type.name for file_type in FILE_TYPES]
    begun = [other for other in names if other.startswith(wanted)]
    alike = begun or difflib.get_close_matches(wanted, names, 3)
    guess = f"did you mean {' or '.join(alike[:4])}? " if alike else ""
    raise QuantizeError(f"There is no type {quoted(name)}: {guess}'octavo quantize --types' lists all.")


def without_type(name: str) -> str:
    """A model's name without the type at its end: "Qwen3-4B-F16" and "Qwen3-4B.Q8_0" are both "Qwen3-4B"."""
    known = {file_type.name for file_type in FILE_TYPES} | set(_SHORT)
    for mark in "-.":
        stem, _, end = name.rpartition(mark)
        if stem and end.upper() in known:
            return stem
    return name
