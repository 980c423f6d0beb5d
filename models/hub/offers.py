"""What a repository offers this machine: which of its variants fit, and which one to take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.kv_size import kv_bytes_per_token
from models.fit import Fit, FitEstimate, Machine, advice_context, estimate
from models.hub.remote_file import RemoteFile
from models.hub.remote_header import remote_metadata
from models.hub.repository import RemoteRepository
from models.hub.variants import Variant
from models.parallel import in_parallel

_GOOD_BITS, _MOST_BITS = 4, 8
_MOST_MODELS = 24
"""Of a repository whose headers are read: a collection of hundreds of files would keep the user waiting."""


class Offer(NamedTuple):
    """A variant and how it fits. bits_per_weight: None where the hub does not know the number of parameters."""

    variant: Variant
    bits_per_weight: float | None
    fit: Fit
    needed: int


class Offers(NamedTuple):
    """The variants by size. context: tokens that the fit counts with; has_kv: and whether the KV cache is in it."""

    offers: tuple[Offer, ...]
    recommended: Offer
    context: int
    has_kv: bool
    machine: Machine


def offers_of(
    repository: RemoteRepository, variants: Sequence[Variant], context: int | None, machine: Machine
) -> Offers:
    """Estimate the fit of `variants`, of which there is at least one.

    context: tokens; None is what the model was trained with, up to ADVICE_CONTEXT. Reads the beginning of one file of
    each model in the repository; where that cannot be had, or does not tell the size of the KV cache, the fit is told
    from the weights alone.
    """
    sizes = _kv_sizes(repository, variants)
    tokens = context or advice_context(repository.context or 0)
    parameters = repository.parameters if len(sizes) == 1 else None  # the hub read those of one of several models
    offers = []
    for variant in variants:
        fit: FitEstimate = estimate(variant.n_bytes, sizes[variant.model.lower()] or 0, tokens, machine)
        offers.append(Offer(variant, variant.bits_per_weight(parameters), fit.fit, fit.needed))
    return Offers(tuple(offers), recommended(offers), tokens, None not in sizes.values(), machine)


def recommended(offers: Sequence[Offer]) -> Offer:
    """The best quality that runs well here, up to Q8_0.

    Of what fits on the GPU, if one of four bits or more does, and else of what fits in memory, without being tight, it
    is the one with the most bits; among equals the largest, but Q4_0, Q4_1, Q5_0 and Q5_1 after the others. Where the
    repository has several models, it is the largest of what this gives for each. Beyond Q8_0 nobody notices a
    difference, so that anything larger is taken only where there is nothing else, and then the smallest of it. Where
    nothing fits, it is the smallest file. Types that ggml has dropped are not recommended.
    """
    live = [offer for offer in offers if not offer.variant.is_obsolete] or list(offers)
    on_gpu = [offer for offer in live if offer.fit is Fit.GPU]
    fitting = [offer for offer in live if offer.fit in (Fit.GPU, Fit.MEMORY)]
    if any(_bits(offer) >= _GOOD_BITS for offer in on_gpu):
        fitting = on_gpu
    useful = [offer for offer in fitting if not _is_beyond_q8(offer, offers)]
    if not useful:
        return min(fitting or live, key=lambda offer: offer.variant.n_bytes)
    best = {offer.variant.model.lower(): offer for offer in sorted(useful, key=_quality)}
    return max(best.values(), key=lambda offer: offer.variant.n_bytes)


def _quality(offer: Offer) -> tuple[float, bool, int]:
    return _bits(offer), not offer.variant.is_simple, offer.variant.n_bytes


def _bits(offer: Offer) -> float:
    return offer.variant.nominal_bits or offer.bits_per_weight or _GOOD_BITS


def _is_beyond_q8(offer: Offer, offers: Sequence[Offer]) -> bool:
    """Also of mixtures such as Q6_K-f32, which are larger than Q8_0."""
    plain = (
        other.variant.n_bytes
        for other in offers
        if other.variant.quantization == "Q8_0" and other.variant.model == offer.variant.model
    )
    return _bits(offer) > _MOST_BITS or offer.variant.n_bytes > next(plain, offer.variant.n_bytes)


def _kv_sizes(repository: RemoteRepository, variants: Sequence[Variant]) -> dict[str, int | None]:
    """Bytes of keys and values a token, by model; they do not depend on the quantization."""

    def size_of(file: RemoteFile) -> int | None:
        metadata = remote_metadata(repository.name, repository.commit, file)
        return kv_bytes_per_token(metadata) if metadata is not None else None

    files: dict[str, RemoteFile] = {}
    for variant in variants:
        files.setdefault(variant.model.lower(), variant.files[0])
    asked = list(files)[:_MOST_MODELS]
    sizes = in_parallel(size_of, [files[model] for model in asked])
    return dict.fromkeys(files) | dict(zip(asked, sizes, strict=True))
