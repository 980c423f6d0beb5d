"""A model in several files is the same model, in both engines; parts that are missing or foreign are named."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader

from engine.config import EngineConfig
from engine.contiguous import ContiguousEngine
from engine.errors import ModelFileError
from engine.gguf_file import GgufFile
from engine.sequence import Request, SamplingParams, TokenEvent
from engine.tokenizer import Tokenizer
from tests.engine.recording import RecordingEngine
from tests.reference import F16, LlamaDecode
from tests.split_gguf import split_gguf

TinyModel = Callable[..., Path]
PROMPT = [(7 * i * i + 3 * i) % 90 for i in range(24)]
N_GREEDY = 16
REPACKED = {"weight_type": "Q4_0", "embedding": 256, "ff": 256}


def greedy(path: Path, n_tokens: int = N_GREEDY) -> tuple[list[int], np.ndarray]:
    """The paged engine's answer to PROMPT, and the logits that it was drawn from."""
    engine = RecordingEngine(path)
    try:
        request = engine.greedy(PROMPT, n_tokens)
        engine.run()
        return engine.drawn[request, 0], engine.logits(request)
    finally:
        engine.close()


def contiguous_greedy(path: Path) -> list[int | None]:
    engine = ContiguousEngine(str(path), EngineConfig(context=256, threads=1, device="cpu"), lambda _: None)
    try:
        engine.submit(Request(tuple(PROMPT), SamplingParams(temperature=0), max_tokens=N_GREEDY))
        events = []
        while engine.has_work():
            events += engine.step()
        return [event.token_id for event in events if isinstance(event, TokenEvent)]
    finally:
        engine.close()


def refusal(path: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        GgufFile.open(path)
    message = str(caught.value)
    assert message.isprintable()
    assert message.endswith(".")
    return message


def patch(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old) == 1
    assert len(old) == len(new)
    path.write_bytes(content.replace(old, new))


@pytest.mark.parametrize("small_first", [False, True])
def test_the_directory_is_that_of_the_whole_file(tiny_model: TinyModel, small_first: bool) -> None:
    path = tiny_model(tokenizer="gpt2")
    shards = split_gguf(path, 4, small_first=small_first)
    whole, split = GgufFile.open(path), GgufFile.open(shards[0])
    assert split.paths == shards
    assert split.path == shards[0]
    assert split.n_bytes == sum(shard.stat().st_size for shard in shards)
    assert {name: value for name, value in split.metadata.items() if not name.startswith("split.")} == whole.metadata
    assert list(split.tensors) == list(whole.tensors)
    for theirs, ours in zip(whole.tensors.values(), split.tensors.values(), strict=True):
        assert (ours.type, ours.shape) == (theirs.type, theirs.shape)
        data = split.paths[ours.shard].read_bytes()[ours.offset :][: ours.n_bytes]
        assert data == path.read_bytes()[theirs.offset :][: theirs.n_bytes]
    assert {tensor.shard for tensor in split.tensors.values()} == set(range(small_first, len(shards)))


@pytest.mark.parametrize("options", [{}, REPACKED], ids=["F32", "Q4_0"])
@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("small_first", [False, True])
def test_the_paged_engine_computes_the_same(
    tiny_model: TinyModel,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, object],
    copied: bool,
    small_first: bool,
) -> None:
    """Whether weights stay in the mapped files, are copied out of them, or repacked."""
    monkeypatch.setattr("engine.paged.prefers_copy", lambda *_: copied)
    path = tiny_model(**options)
    first, *_ = split_gguf(path, 5, small_first=small_first)
    tokens, logits = greedy(first)
    whole_tokens, whole_logits = greedy(path)
    assert tokens == whole_tokens
    assert np.array_equal(logits, whole_logits)
    with LlamaDecode(path, kv_type=F16, extra_bufts=True) as oracle:
        assert np.array_equal(logits[0], oracle.decode(PROMPT, last_only=True)[0])


def test_the_contiguous_engine_answers_the_same(tiny_model: TinyModel) -> None:
    path = tiny_model()
    assert contiguous_greedy(split_gguf(path, 5)[0]) == contiguous_greedy(path)


def test_a_real_model(starter_path: Path, starter_reader: GGUFReader, tmp_path: Path) -> None:
    path = tmp_path / starter_path.name
    path.symlink_to(starter_path)
    first, *_ = split_gguf(path, 100, reader=starter_reader)
    (tokens, logits), (whole_tokens, whole_logits) = greedy(first, 2), greedy(path, 2)
    assert tokens == whole_tokens
    assert np.array_equal(logits, whole_logits)
    text = "Paris is the capital of"
    assert Tokenizer(str(first)).encode_raw(text) == Tokenizer(str(path)).encode_raw(text)


def test_links_of_the_hub_cache(tiny_model: TinyModel) -> None:
    """Names are those of the links in a snapshot; what they point to is called by its hash."""
    path = tiny_model()
    shards = split_gguf(path, 5)
    blobs, snapshot = path.parent / "blobs", path.parent / "snapshots" / "0f3a"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    for number, shard in enumerate(shards):
        shutil.move(shard, blobs / f"{number:064x}")
        (snapshot / shard.name).symlink_to(f"../../blobs/{number:064x}")
    first = snapshot / shards[0].name
    assert GgufFile.open(first).paths == tuple(snapshot / shard.name for shard in shards)
    assert contiguous_greedy(first) == greedy(first)[0] == greedy(path)[0]
    assert "original names" in refusal(blobs / f"{0:064x}")


def test_another_part_than_the_first(tiny_model: TinyModel) -> None:
    shards = split_gguf(tiny_model(), 8)
    message = refusal(shards[1])
    assert f"part 2 of a model in {len(shards)} files: give the first one, '{shards[0].name}'." in message
    shards[0].unlink()
    assert "which is missing" in refusal(shards[1])


def test_missing_parts(tiny_model: TinyModel) -> None:
    shards = split_gguf(tiny_model(), 8)
    shards[1].unlink()
    message = refusal(shards[0])
    assert f"'{shards[1].name}' is missing" in message
    assert "same folder" in message
    shards[2].unlink()
    assert f"'{shards[1].name}' and 1 more are missing" in refusal(shards[0])
    shards[1].symlink_to("gone")
    assert f"'{shards[1].name}' and 1 more" in refusal(shards[0])


def test_a_part_that_is_no_file(tiny_model: TinyModel) -> None:
    shards = split_gguf(tiny_model(), 8)
    shards[1].unlink()
    os.mkfifo(shards[1])
    assert "not a regular file" in refusal(shards[0])


def test_a_part_cut_short(tiny_model: TinyModel) -> None:
    shards = split_gguf(tiny_model(), 8)
    os.truncate(shards[1], shards[1].stat().st_size // 2)
    message = refusal(shards[0])
    assert shards[1].name in message
    assert "not downloaded completely" in message


def test_renamed_parts(tiny_model: TinyModel) -> None:
    first, *_ = split_gguf(tiny_model(), 8)
    renamed = first.rename(first.with_name("model.gguf"))
    assert "does not end in '-00001-of-00003.gguf'" in refusal(renamed)


def test_parts_of_other_models(tiny_model: TinyModel) -> None:
    path = tiny_model()
    shards = split_gguf(path, 8)
    kept = shards[1].read_bytes()

    shutil.copy(shards[2], shards[1])
    assert "not part 2 of the same model in 3 files" in refusal(shards[0])

    shards[1].write_bytes(kept)
    patch(shards[1], b"split.count\2\0\0\0\3\0", b"split.count\2\0\0\0\4\0")
    assert "not part 2 of the same model in 3 files" in refusal(shards[0])

    shutil.copy(path, shards[1])  # a whole model under the name of a part
    assert "not part 2 of the same model in 3 files" in refusal(shards[0])

    shards[1].write_bytes(kept)
    patch(shards[1], b"blk.1.attn_q.weight", b"blk.0.attn_q.weight")
    assert "both have tensor 'blk.0.attn_q.weight'" in refusal(shards[0])


def test_parts_that_lack_a_tensor(tiny_model: TinyModel) -> None:
    shards = split_gguf(tiny_model(), 8)
    patch(shards[0], b"split.tensors.count\5\0\0\0\x15\0\0\0", b"split.tensors.count\5\0\0\0\x16\0\0\0")
    assert "21 tensors of 22" in refusal(shards[0])


@pytest.mark.parametrize("count", [3, 65535])
def test_absurd_counts(tiny_model: TinyModel, count: int) -> None:
    first, *_ = split_gguf(tiny_model(), 8)
    patch(first, b"split.count\2\0\0\0\3\0", b"split.count\2\0\0\0" + count.to_bytes(2, "little"))
    patch(first, b"split.no\2\0\0\0\0\0", b"split.no\2\0\0\0\xff\xff")
    assert "damaged" in refusal(first)
    patch(first, b"split.no\2\0\0\0\xff\xff", b"split.no\2\0\0\0\0\0")
    if count == 65535:
        first = first.rename(first.with_name("tiny-00001-of-65535.gguf"))
        assert "'tiny-00002-of-65535.gguf' and 65,533 more are missing" in refusal(first)


def test_numbers_of_a_type_on_which_llama_cpp_would_abort(tiny_model: TinyModel) -> None:
    shards = split_gguf(tiny_model(), 8)
    patch(shards[1], b"split.no\2\0\0\0\1\0", b"split.no\3\0\0\0\1\0")
    message = refusal(shards[0])
    assert "'split.no'" in message
    assert shards[1].name in message


def test_a_split_into_one_file_is_a_whole_model(tiny_model: TinyModel) -> None:
    path = tiny_model()
    first, *_ = split_gguf(path, 100, small_first=True)
    patch(first, b"split.count\2\0\0\0\2\0", b"split.count\2\0\0\0\1\0")
    assert GgufFile.open(first).paths == (first,)
