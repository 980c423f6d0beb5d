"""The tokens that begin and end a text, and the chat template: from a checkpoint's files to the keys of GGUF."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from models.conversion.checkpoint_json import JsonObject, content_of, damaged
from models.errors import ConversionError

_KINDS = ("bos", "eos", "unk", "pad")


@dataclass(frozen=True)
class TokenizerFiles:
    """The files that describe a tokenizer; an empty object stands for one that is not there."""

    folder: Path
    tokenizer: JsonObject
    tokenizer_config: JsonObject
    config: JsonObject
    generation_config: JsonObject

    @classmethod
    def read(cls, folder: Path) -> TokenizerFiles:
        """Raises ConversionError if one of them is not a JSON object."""
        names = ("tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json")
        return cls(folder, *(JsonObject.read_if_there(folder / name) for name in names))


@dataclass(frozen=True)
class SpecialTokens:
    """ids: by the name that GGUF has for the kind: bos, eos, unk, pad, and eot and eom for further tokens that end an
    answer. add_bos, add_eos: every text begins or ends with it.
    """

    ids: Mapping[str, int]
    add_bos: bool
    add_eos: bool


def special_tokens(files: TokenizerFiles, ids: Mapping[str, int], *, adds_bos: bool) -> SpecialTokens:
    """Find them. ids: of all tokens by text. adds_bos: whether this kind of tokenizer begins texts with BOS if no file
    says anything about it.

    tokenizer_config.json goes before config.json, as in transformers. Raises ConversionError if a file is damaged, or
    if none says which token ends a text.
    """
    found = {kind: token for kind in _KINDS if (token := _id_of(kind, files, ids)) is not None}
    ends = _ends(files, len(ids))
    if ends:
        found.setdefault("eos", ends[0])
    if "eos" not in found:
        raise ConversionError("The checkpoint does not say which token ends a text, so that answers would never end.")
    further = [token for token in ends if token != found["eos"]]
    found |= dict(zip(("eot", "eom"), further, strict=False))
    first, last = _around(files.tokenizer)
    if first in ids:
        found.setdefault("bos", ids[first])
    if files.tokenizer.has("post_processor"):
        adds_bos = ids.get(first) == found.get("bos")
    adds_bos = bool(files.tokenizer_config.flag("add_bos_token", adds_bos))
    adds_eos = bool(files.tokenizer_config.flag("add_eos_token", ids.get(last) == found["eos"]))
    return SpecialTokens(found, add_bos=adds_bos and "bos" in found, add_eos=adds_eos)


def chat_template(files: TokenizerFiles) -> str | list[dict[str, str]] | None:
    """Jinja source, or several with names, of which "default" is the one to use; None if there is none."""
    path = files.folder / "chat_template.jinja"
    if path.is_file():
        try:
            return content_of(path).decode()
        except UnicodeDecodeError:
            raise damaged(path, "it is no text in UTF-8") from None
    if isinstance(files.tokenizer_config.values.get("chat_template"), list):
        named = files.tokenizer_config.nested_array("chat_template")
        return [{"name": one.text("name"), "template": one.text("template")} for one in named]
    alone = JsonObject.read_if_there(files.folder / "chat_template.json")
    return files.tokenizer_config.text("chat_template") or alone.text("chat_template") or None


def _id_of(kind: str, files: TokenizerFiles, ids: Mapping[str, int]) -> int | None:
    value = files.tokenizer_config.values.get(f"{kind}_token")
    text = value.get("content") if isinstance(value, dict) else value
    if isinstance(text, str) and text in ids:
        return ids[text]
    number = files.config.values.get(f"{kind}_token_id")
    return number if type(number) is int and 0 <= number < len(ids) else None


def _ends(files: TokenizerFiles, n: int) -> list[int]:
    """Tokens that end an answer, generation_config.json's before config.json's."""
    values = [source.values.get("eos_token_id") for source in (files.generation_config, files.config)]
    numbers = [number for value in values for number in (value if isinstance(value, list) else [value])]
    return list(dict.fromkeys(number for number in numbers if type(number) is int and 0 <= number < n))


def _around(tokenizer: JsonObject) -> tuple[str, str]:
    """The tokens before and after a text in the template of a tokenizer.json, empty where there is none."""
    processor = tokenizer.nested("post_processor")
    for part in processor.nested_array("processors") or [processor]:
        if part.text("type") == "TemplateProcessing":
            single = part.nested_array("single")
            if len(single) > 1:
                return single[0].nested("SpecialToken").text("id"), single[-1].nested("SpecialToken").text("id")
    return "", ""
