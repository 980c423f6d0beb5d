"""Names of models on the hub, as users write and paste them."""

from __future__ import annotations

import pytest
from huggingface_hub import constants

from models.errors import ReferenceFormatError
from models.hub.reference import HubReference, parse_reference

REPO = "unsloth/Qwen3-4B-GGUF"
FILE = "UD/Qwen3-4B-UD-Q4_K_XL.gguf"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (REPO, HubReference(REPO)),
        (f"  {REPO}\n", HubReference(REPO)),
        (f"{REPO}:Q4_K_M", HubReference(REPO, "Q4_K_M")),
        (f"{REPO}:{FILE}", HubReference(REPO, FILE)),
        (f"{REPO}@v1.0", HubReference(REPO, None, "v1.0")),
        (f"{REPO}@refs/pr/3:q8_0", HubReference(REPO, "q8_0", "refs/pr/3")),
        (f"{REPO}:my model (1).gguf", HubReference(REPO, "my model (1).gguf")),
        (f"hf.co/{REPO}", HubReference(REPO)),
        (f"hf.co/{REPO}:Q4_K_M", HubReference(REPO, "Q4_K_M")),
        (f"HF.co/{REPO}:Q4_K_M", HubReference(REPO, "Q4_K_M")),
        (f"huggingface.co/{REPO}", HubReference(REPO)),
        (f"https://huggingface.co/{REPO}", HubReference(REPO)),
        (f"https://huggingface.co/{REPO}/", HubReference(REPO)),
        (f"https://www.huggingface.co/{REPO}:Q4_K_M", HubReference(REPO, "Q4_K_M")),
        (f"https://huggingface.co/{REPO}?library=llama-cpp-python#files", HubReference(REPO)),
        (f"https://huggingface.co/{REPO}/tree/main", HubReference(REPO)),
        (f"https://huggingface.co/{REPO}/tree/v2/UD", HubReference(REPO, "UD", "v2")),
        (f"https://huggingface.co/{REPO}/resolve/main/{FILE}?download=true", HubReference(REPO, FILE)),
        (f"https://huggingface.co/{REPO}/blob/main/{FILE}", HubReference(REPO, FILE)),
        (f"https://huggingface.co/{REPO}/blob/refs%2Fpr%2F1/a%20b.gguf", HubReference(REPO, "a b.gguf", "refs/pr/1")),
        (f"https://huggingface.co/{REPO}/resolve/refs/pr/1/{FILE}", HubReference(REPO, FILE, "refs/pr/1")),
    ],
)
def test_ways_to_name_a_model(text: str, expected: HubReference) -> None:
    reference = parse_reference(text)
    assert reference == expected
    assert parse_reference(str(reference)) == reference


def test_the_endpoint_is_the_hub_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:8000/mirror")
    expected = HubReference(REPO, FILE)
    assert parse_reference(f"http://127.0.0.1:8000/mirror/{REPO}/resolve/main/{FILE}") == expected
    assert parse_reference(f"https://huggingface.co/{REPO}/resolve/main/{FILE}") == expected


def test_a_revision_beside_the_name() -> None:
    assert parse_reference(REPO, "v2").revision == "v2"
    assert parse_reference(f"{REPO}@v2:Q8_0", "v2") == HubReference(REPO, "Q8_0", "v2")
    assert parse_reference(REPO, "main").revision is None
    with pytest.raises(ReferenceFormatError, match="'v1', and --revision 'v2': drop one"):
        parse_reference(f"https://huggingface.co/{REPO}/tree/v1", "v2")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "octavo search"),
        ("llama3", "user/repo"),
        ("llama3:8b", "user/repo"),
        ("/home/me/model.gguf", "octavo import"),
        ("a/b/c", "user/repo"),
        (f"{REPO}:", "user/repo"),
        (f"{REPO}@", "user/repo"),
        ("us er/repo", "user/repo"),
        ("user/répo", "user/repo"),
        ("../llama", "cannot be the name"),
        ("user/a--b", "cannot be the name"),
        ("user/-a:Q4_0", "cannot be the name"),
        ("https://huggingface.co/user/" + "x" * 100, "cannot be the name"),
        ("https://example.com/model.gguf", "download the file, then 'octavo import'"),
        ("https://huggingface.co.evil.example/user/repo", "octavo import"),
        ("ftp://huggingface.co/user/repo", "octavo import"),
        ("https://huggingface.co/datasets/user/data", "not the address of a model"),
        ("https://huggingface.co", "not the address of a model"),
        ("https://huggingface.co/user", "user/repo"),
        ("https://[huggingface.co/user/repo", "not an address"),
    ],
)
def test_what_names_no_model(text: str, reason: str) -> None:
    with pytest.raises(ReferenceFormatError, match=reason):
        parse_reference(text)


def test_escapes_are_not_passed_on() -> None:
    with pytest.raises(ReferenceFormatError) as error:
        parse_reference("a\x1b[31m")
    assert "\x1b" not in str(error.value)
