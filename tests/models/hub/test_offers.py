"""Which variant to take on a machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from models.fit import OVERHEAD, Fit, Machine
from models.hub.offers import Offer, offers_of, recommended
from models.hub.reference import HubReference
from models.hub.remote_file import RemoteFile
from models.hub.repository import RemoteRepository, repository
from models.hub.variants import variants_of
from tests.hub_server import Hub
from tests.models.hub.test_variants import MIXTURES

G, M = Fit.GPU, Fit.MEMORY
T, X = Fit.TIGHT, Fit.TOO_LARGE


def offers(**fits: Fit) -> list[Offer]:
    """Offers of quantizations with these fits, in order of size."""
    files = [RemoteFile(f"m-{name}.gguf", 1000 + size, None) for size, name in enumerate(fits)]
    return [Offer(variant, None, fit, 0) for variant, fit in zip(variants_of(files), fits.values(), strict=True)]


@pytest.mark.parametrize(
    ("fits", "expected"),
    [
        ({"Q3_K_M": M, "Q4_K_M": M, "Q6_K": M, "Q8_0": M, "F16": M}, "Q8_0"),
        ({"Q3_K_M": M, "Q4_K_M": M, "Q6_K": M, "Q8_0": T, "F16": X}, "Q6_K"),
        ({"Q2_K": M, "Q3_K_M": M, "Q4_K_M": T, "Q8_0": X}, "Q3_K_M"),
        ({"Q4_K_M": M, "Q8_0": M, "UD-Q8_K_XL": M, "BF16": M}, "Q8_0"),
        ({"Q4_K_M": M, "UD-Q8_K_XL": M, "BF16": M}, "UD-Q8_K_XL"),
        ({"Q4_K_M": G, "Q6_K": G, "Q8_0": M}, "Q6_K"),
        ({"Q2_K": G, "Q4_K_M": M, "Q8_0": M}, "Q8_0"),
        ({"Q2_K": G, "Q3_K_S": G, "Q4_K_M": T, "Q8_0": X}, "Q3_K_S"),
        ({"BF16": M, "F32": M}, "BF16"),
        ({"Q2_K": T, "Q4_K_M": T, "Q8_0": X}, "Q2_K"),
        ({"Q2_K": X, "Q4_K_M": X}, "Q2_K"),
        ({"Q4_K_M": M, "Q4_0_8_8": M}, "Q4_K_M"),
        ({"Q4_0_4_4": M}, "Q4_0_4_4"),
        ({"Q4_K_M": M, "UD-Q4_K_XL": M, "Q4_1": M, "Q5_K_S": T}, "UD-Q4_K_XL"),
        ({"Q3_K_L": M, "Q4_0": M, "Q4_K_M": T}, "Q4_0"),
        ({"Q5_K_S": M, "Q4_K_M-fp16": M, "Q8_0": T}, "Q5_K_S"),
        ({"MXFP4": M, "F16": M}, "MXFP4"),
        ({"unknown": M}, "m-unknown"),
    ],
)
def test_the_recommended_one(fits: dict[str, Fit], expected: str) -> None:
    found = (
        offers(**fits)
        if "unknown" not in fits
        else [Offer(variants_of([RemoteFile("m-unknown.gguf", 9, None)])[0], None, M, 0)]
    )
    assert recommended(found).variant.name == expected


def test_mixtures_larger_than_q8_are_not_better() -> None:
    files = [RemoteFile(f"gemma-2-9b-it-{name}.gguf", size, None) for name, size in MIXTURES.items()]
    fitting = [Offer(variant, None, M, 0) for variant in variants_of(files)]
    assert recommended(fitting).variant.name == "Q8_0"


def test_the_larger_one_of_several_models() -> None:
    sizes = {"big-Q4_K_M": (4000, M), "big-Q8_0": (8000, X), "small-Q4_K_M": (400, M), "small-Q8_0": (800, M)}
    variants = variants_of([RemoteFile(f"{name}.gguf", size, None) for name, (size, _) in sizes.items()])
    found = [Offer(variant, None, sizes[variant.stem][1], 0) for variant in variants]
    assert recommended(found).variant.name == "big-Q4_K_M"


@pytest.fixture
def remote(hub: Hub, tiny_model: Callable[..., Path]) -> RemoteRepository:
    """A tiny model: 2 layers, 2 KV heads of 16 numbers."""
    model = tiny_model()
    parameters = model.stat().st_size // 4
    hub.add(
        "me/tiny-GGUF",
        {"tiny-F32.gguf": model, "tiny-Q4_0.gguf": model.read_bytes()[:-1000]},
        gguf={"total": parameters, "architecture": "llama", "context_length": 256},
    )
    return repository(HubReference("me/tiny-GGUF"))


def test_needs_are_weights_cache_and_overhead(remote: RemoteRepository) -> None:
    variants = variants_of(remote.files)
    found = offers_of(remote, variants, None, Machine(2**40, 0))
    assert (found.context, found.has_kv) == (256, True)
    kv = 2 * 2 * 2 * 16 * 2 * 256  # layers, keys and values, heads, size, bytes, tokens
    assert [offer.needed for offer in found.offers] == [variant.n_bytes + kv + OVERHEAD for variant in variants]
    assert (
        offers_of(remote, variants, 512, Machine(2**40, 0)).offers[0].needed == variants[0].n_bytes + 2 * kv + OVERHEAD
    )
    assert [round(offer.bits_per_weight or 0) for offer in found.offers][1] == 32
    assert {offer.fit for offer in found.offers} == {Fit.MEMORY}
    assert {offer.fit for offer in offers_of(remote, variants, None, Machine(2**20, 0)).offers} == {Fit.TOO_LARGE}
    assert {offer.fit for offer in offers_of(remote, variants, None, Machine(2**20, 2**40)).offers} == {Fit.GPU}


def test_without_a_header_the_weights_alone_count(hub: Hub, remote: RemoteRepository) -> None:
    hub.fail("tiny-Q4_0.gguf", status=403, times=None)
    found = offers_of(remote, variants_of(remote.files), None, Machine(2**40, 0))
    assert not found.has_kv
    assert found.offers[0].needed == found.offers[0].variant.n_bytes + OVERHEAD


def test_the_header_is_read_once_a_model(hub: Hub, remote: RemoteRepository) -> None:
    hub.forget_requests()
    offers_of(remote, variants_of(remote.files), None, Machine(2**40, 0))
    assert len([request for request in hub.requests if request.host == "cdn"]) == 1


def test_of_a_collection_of_models_some_headers_are_read(hub: Hub, tiny_model: Callable[..., Path]) -> None:
    model = tiny_model()
    hub.add("me/many", {f"model{number:02}-Q4_0.gguf": model for number in range(40)})
    remote = repository(HubReference("me/many"))
    hub.forget_requests()
    found = offers_of(remote, variants_of(remote.files), None, Machine(2**40, 0))
    assert len([request for request in hub.requests if request.host == "cdn"]) == 24
    assert not found.has_kv
    assert len({offer.needed for offer in found.offers[:24]}) == 1
    assert found.offers[0].needed > found.offers[-1].needed


def test_the_parameters_are_those_of_one_of_several_models(hub: Hub, tiny_model: Callable[..., Path]) -> None:
    hub.add("me/two", {"a-Q4_0.gguf": tiny_model(), "b-Q4_0.gguf": tiny_model()}, gguf={"total": 50_000})
    remote = repository(HubReference("me/two"))
    found = offers_of(remote, variants_of(remote.files), None, Machine(2**40, 0))
    assert [offer.bits_per_weight for offer in found.offers] == [None, None]
