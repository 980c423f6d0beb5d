"""Where other programs keep their models in GGUF, and how they call them.

LM Studio: https://lmstudio.ai/docs/app/advanced/import-model and findLMStudioHome of lmstudio.js. The hub's cache:
https://huggingface.co/docs/huggingface_hub/guides/manage-cache. llama.cpp: fs_get_cache_directory in common/common.cpp
and common/hf-cache.cpp. Jan: https://jan.ai/docs/data-folder. GPT4All: QStandardPaths' AppLocalDataLocation.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import platformdirs
from huggingface_hub import constants

from models.catalogue import Origin
from models.elsewhere.holdings import Holding, entries, files_under, models_under
from models.elsewhere.ollama_store import held_by_ollama, ollama_stores
from models.hub.pulled import name_of
from models.hub.reference import HubReference
from models.hub.remote_file import RemoteFile
from models.hub.variants import variants_of
from models.names import safe_name
from models.shards import without_shard_number

_UNSAID = re.compile(r"model|ggml-model(-.*)?", re.IGNORECASE)
"""Names of files that only their folder tells apart."""


def all_holdings(unreadable: list[Path]) -> Iterator[Holding]:
    """Files that other programs keep as models. unreadable: gets what is damaged or may not be read."""
    yield from held_in_hub_cache(Path(constants.HF_HUB_CACHE), unreadable)
    for store in ollama_stores():
        yield from held_by_ollama(store, unreadable)
    for folder in lm_studio_folders():
        yield from held_in_folder("LM Studio", folder, unreadable)
    yield from held_in_folder("llama.cpp", _llama_cpp_cache(), unreadable)
    for folder in _jan_folders():
        yield from held_in_folder("Jan", folder, unreadable)
    for folder in (platformdirs.user_data_path() / "nomic.ai" / "GPT4All", Path.home() / ".cache" / "gpt4all"):
        yield from held_in_folder("GPT4All", folder, unreadable)


def held_in_folder(program: str, folder: Path, unreadable: list[Path]) -> Iterator[Holding]:
    """The models anywhere under a folder of .gguf files."""
    for file in models_under(folder, unreadable):
        label = file.relative_to(folder).as_posix()
        yield Holding(program, label, file, _name(folder, file))


def held_in_hub_cache(cache: Path, unreadable: list[Path]) -> Iterator[Holding]:
    """The models in huggingface_hub's cache, whoever downloaded them; newest commits first.

    huggingface_hub's own scan passes over a whole repository for one file that is missing.
    """
    for folder in entries(cache, unreadable):
        kind, _, repository = folder.name.partition("--")
        if kind == "models":
            for snapshot in sorted(entries(folder / "snapshots", unreadable), key=_changed, reverse=True):
                yield from _held_in_snapshot(repository.replace("--", "/", 1), snapshot, unreadable)


def _held_in_snapshot(repository: str, snapshot: Path, unreadable: list[Path]) -> Iterator[Holding]:
    files = []
    for file in files_under(snapshot, unreadable):
        if file.suffix.lower() == ".gguf":
            try:
                files.append(RemoteFile(file.relative_to(snapshot).as_posix(), os.path.getsize(file), None))
            except OSError:
                unreadable.append(file)
    for variant in variants_of(files):
        path, source = snapshot / variant.files[0].name, str(HubReference(repository, variant.name))
        yield Holding("Hugging Face", source, path, name_of(repository, variant), Origin.PULLED, source)


def lm_studio_folders() -> list[Path]:
    """The models folders of LM Studio: of its home folder, wherever that is, and where its settings move them."""
    user = Path.home()
    pointer = user / ".lmstudio-home-pointer"
    homes = [user / ".lmstudio", user / ".cache" / "lm-studio", *_absolute(_text(pointer).strip())]
    folders: list[Path] = []
    for home in (*homes, platformdirs.user_config_path(roaming=True) / "LM Studio"):
        with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):  # no JSON, or no object
            folders += _absolute(json.loads(_text(home / "settings.json")).get("downloadsFolder"))
    return list(dict.fromkeys([*folders, *(home / "models" for home in homes)]))


def _text(file: Path) -> str:
    """Content of a small file; empty if there is none."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _absolute(folder: str) -> list[Path]:
    """The folder, if the text names one, and the same one wherever this program is started."""
    return [Path(folder)] if os.path.isabs(folder) and os.path.isdir(folder) else []


def _llama_cpp_cache() -> Path:
    moved = os.environ.get("LLAMA_CACHE")
    return Path(moved) if moved else platformdirs.user_cache_path("llama.cpp", appauthor=False, opinion=False)


def _jan_folders() -> list[Path]:
    data = platformdirs.user_config_path(roaming=True) / "Jan" / "data"
    return [data / "llamacpp" / "models", data / "models"]


def _name(root: Path, file: Path) -> str:
    """From the name of the file, or of its folder where all files are called the same."""
    stem = without_shard_number(file.name)[: -len(".gguf")]
    if _UNSAID.fullmatch(stem) and file.parent != root:
        return safe_name(file.parent.name)
    return safe_name(re.split(r"[-_.]gguf_", stem, flags=re.IGNORECASE)[-1])


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
