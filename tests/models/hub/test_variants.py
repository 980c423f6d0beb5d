"""From the files of a repository to the variants of its model: names as they are on the hub."""

from __future__ import annotations

import pytest

from models.hub.remote_file import RemoteFile
from models.hub.variants import Variant, matching, offered, variants_of

# bartowski's gemma-2-9b-it: sizes in hundredths of a GiB.
MIXTURES = {
    "IQ2_M": 320, "IQ3_XXS": 354, "IQ4_XS": 483, "Q2_K_L": 375, "Q3_K_L-Q8": 499, "Q3_K_XL": 499, "Q4_K_M": 537,
    "Q4_K_M-fp16": 637, "Q6_K": 707, "Q6_K-f32": 978, "Q8_0": 915, "Q8_0-f16": 995, "Q8_0_L": 995, "f32": 3443,
}  # fmt: skip


def listing(*names: str, n_bytes: int = 1000) -> list[RemoteFile]:
    return [RemoteFile(name, n_bytes, "0" * 64) for name in names]


def names_of(*files: str) -> list[str]:
    return [variant.name for variant in variants_of(listing(*files))]


@pytest.mark.parametrize(
    ("file", "model", "quantization"),
    [
        ("Qwen3-4B-Q4_K_M.gguf", "Qwen3-4B", "Q4_K_M"),
        ("qwen2.5-7b-instruct-q4_k_m.gguf", "qwen2.5-7b-instruct", "Q4_K_M"),
        ("Qwen3-4B-UD-Q4_K_XL.gguf", "Qwen3-4B", "UD-Q4_K_XL"),
        ("gemma-3-12b-it-UD-IQ2_XXS.gguf", "gemma-3-12b-it", "UD-IQ2_XXS"),
        ("llama-2-7b.Q4_0.gguf", "llama-2-7b", "Q4_0"),
        ("Model.i1-IQ1_S.gguf", "Model.i1", "IQ1_S"),
        ("Phi-3-mini-4k-instruct-fp16.gguf", "Phi-3-mini-4k-instruct", "F16"),
        ("model-bf16.gguf", "model", "BF16"),
        ("Meta-Llama-3-8B-Instruct_Q4_0_4_8.gguf", "Meta-Llama-3-8B-Instruct", "Q4_0_4_8"),
        ("gpt-oss-20b-MXFP4.gguf", "gpt-oss-20b", "MXFP4"),
        ("gpt-oss-20b-mxfp4_moe.gguf", "gpt-oss-20b", "MXFP4_MOE"),
        ("bitnet-TQ2_0.gguf", "bitnet", "TQ2_0"),
        ("gemma-2-9b-it-Q4_K_M-fp16.gguf", "gemma-2-9b-it", "Q4_K_M-fp16"),
        ("Mistral-7B.f16.q6_k.gguf", "Mistral-7B.f16", "Q6_K"),
        ("mistral-7b-Q4_K_M-imat.gguf", "mistral-7b", "Q4_K_M-imat"),
        ("Q4_K_M/model.gguf", "model", "Q4_K_M"),
        ("Q8_0.gguf", "", "Q8_0"),
        ("ggml-model.gguf", "ggml-model", ""),
        ("Qwen1.5-0.5B.GGUF", "Qwen1.5-0.5B", ""),
    ],
)
def test_the_name_of_a_file(file: str, model: str, quantization: str) -> None:
    (variant,) = variants_of(listing(file))
    assert (variant.model, variant.quantization) == (model, quantization)


def test_every_mixture_is_a_variant_of_its_own() -> None:
    files = [RemoteFile(f"gemma-2-9b-it-{name}.gguf", size, None) for name, size in MIXTURES.items()]
    variants = variants_of(files)
    assert [variant.name for variant in variants] == [
        {"f32": "F32"}.get(name, name) for name in sorted(MIXTURES, key=lambda name: (MIXTURES[name], name))
    ]
    assert {variant.model for variant in variants} == {"gemma-2-9b-it"}


def test_shards_are_one_variant() -> None:
    files = listing(
        "BF16/Qwen3-235B-BF16-00002-of-00003.gguf",
        "BF16/Qwen3-235B-BF16-00001-of-00003.gguf",
        "BF16/Qwen3-235B-BF16-00003-of-00003.gguf",
        "UD-Q2_K_XL/Qwen3-235B-UD-Q2_K_XL-00001-of-00002.gguf",
        "UD-Q2_K_XL/Qwen3-235B-UD-Q2_K_XL-00002-of-00002.gguf",
        "Qwen3-235B-UD-TQ1_0.gguf",
    )
    variants = {variant.name: variant for variant in variants_of(files)}
    assert set(variants) == {"BF16", "UD-Q2_K_XL", "UD-TQ1_0"}
    bf16 = variants["BF16"]
    assert [file.name[-19:-5] for file in bf16.files] == ["00001-of-00003", "00002-of-00003", "00003-of-00003"]
    assert bf16.n_bytes == 3000
    assert bf16.stem == "Qwen3-235B-BF16"


def test_a_model_with_a_missing_shard_is_not_offered() -> None:
    assert names_of("m-Q8_0-00001-of-00002.gguf", "m-Q4_0.gguf") == ["Q4_0"]
    assert names_of("m-Q8_0-00002-of-00002.gguf", "m-Q4_0.gguf") == ["Q4_0"]


def test_what_is_no_model() -> None:
    others = (
        "mmproj-F16.gguf",
        "mmproj-model-Q8_0.gguf",
        "imatrix_unsloth.gguf",
        "m.imatrix.gguf",
        "README.md",
        "m.bin",
    )
    assert names_of(*others, "m-Q4_0.gguf") == ["Q4_0"]
    assert names_of("m-Q4_K_M-imatrix.gguf") == ["Q4_K_M-imatrix"]
    assert names_of(*others) == []


def test_several_models_in_a_repository_are_kept_apart() -> None:
    assert names_of("a-Q4_0.gguf", "b-Q4_0.gguf", "b-Q8_0.gguf") == ["Q8_0", "a-Q4_0", "b-Q4_0"]
    assert names_of("x/m-Q4_0.gguf", "y/m-Q4_0.gguf") == ["x/m-Q4_0.gguf", "y/m-Q4_0.gguf"]


def test_a_draft_is_offered_only_where_there_is_nothing_else() -> None:
    variants = variants_of(listing("big-Q8_0.gguf", "big-draft-Q8_0.gguf"))
    assert [variant.name for variant in offered(variants)] == ["Q8_0"]
    assert [variant.name for variant in matching(variants, "big-draft-Q8_0.gguf")] == ["big-draft-Q8_0"]
    assert [variant.name for variant in matching(variants, "Q8_0")] == ["Q8_0"]
    assert names_of("Qwen-DRAFT-0.6B-Q4_0.gguf") == ["Q4_0"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("Q4_K_M", ["Q4_K_M"]),
        ("q4_k_m", ["Q4_K_M"]),
        ("Q4_K_XL", ["UD-Q4_K_XL"]),
        ("ud-q4_k_xl", ["UD-Q4_K_XL"]),
        ("m-Q4_K_M", ["Q4_K_M"]),
        ("m-Q4_K_M.gguf", ["Q4_K_M"]),
        ("big/M-BF16-00001-of-00002.gguf", ["BF16"]),
        ("m-bf16-00002-of-00002.gguf", ["BF16"]),
        ("M-BF16", ["BF16"]),
        ("Q4_0", ["a-Q4_0", "b-Q4_0"]),
        ("a-Q4_0", ["a-Q4_0"]),
        ("Q9", []),
        ("K_M", []),
        (".gguf", []),
    ],
)
def test_what_the_user_means(wanted: str, expected: list[str]) -> None:
    variants = variants_of(
        listing(
            "m-Q4_K_M.gguf", "m-UD-Q4_K_XL.gguf", "big/m-BF16-00001-of-00002.gguf", "big/m-BF16-00002-of-00002.gguf",
            "a-Q4_0.gguf", "b-Q4_0.gguf",
        )
    )  # fmt: skip
    assert sorted(variant.name for variant in matching(variants, wanted)) == expected


@pytest.mark.parametrize(
    ("quantization", "bits"),
    [
        ("Q4_K_M", 4),
        ("UD-IQ2_XXS", 2),
        ("BF16", 16),
        ("F32", 32),
        ("MXFP4", 4),
        ("TQ1_0", 1),
        ("Q6_K-f32", 6),
        ("", None),
    ],
)
def test_nominal_bits(quantization: str, bits: int | None) -> None:
    assert Variant("", "", quantization, ()).nominal_bits == bits


def test_bits_per_weight() -> None:
    (variant,) = variants_of(listing("Qwen3-4B-Q4_K_M.gguf", n_bytes=2_497_280_256))
    assert variant.bits_per_weight(4_022_468_096) == pytest.approx(4.967, abs=0.001)
    assert variant.bits_per_weight(None) is None
    assert variant.bits_per_weight(1_000_000) is None  # of another file
