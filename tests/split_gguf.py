"""Models in several files, made from one in a single file as llama.cpp's gguf-split makes them."""

from __future__ import annotations

from pathlib import Path

from gguf import GGUFReader, GGUFValueType, GGUFWriter


def split_gguf(
    path: Path, max_tensors: int, *, small_first: bool = False, reader: GGUFReader | None = None
) -> tuple[Path, ...]:
    """Write the shards of the model at `path` beside it and return their paths.

    max_tensors: of one shard. small_first: the first shard holds the metadata alone. reader: of the file at `path`.
    """
    reader = reader or GGUFReader(path)
    architecture = str(reader.fields["general.architecture"].contents())
    writer = GGUFWriter(path, architecture, split_max_tensors=max_tensors, small_first_shard=small_first)
    for name, field in reader.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            kind, *elements = field.types
            sub_type = elements[-1] if kind == GGUFValueType.ARRAY and elements else None
            writer.add_key_value(name, field.contents(), kind, sub_type=sub_type)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    shards = tuple(writer.format_shard_names(path))
    assert len(shards) > 1
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return shards
