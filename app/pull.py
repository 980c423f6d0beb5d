"""`octavo pull`: a model from the hub, in the quantization that suits this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from app.offers_table import offers_as_dict, write_offers
from app.progress import byte_progress, label
from app.questions import ask, can_ask
from app.terminal import StatusLine, tolerate_encoding, write_json, write_text
from engine.gguf_file import GgufFile
from engine.printable import listed, one_line, quoted
from engine.units import format_bytes
from models.catalogue import Catalogue, InstalledModel
from models.errors import HubError
from models.fit import Fit, Machine
from models.hub.cache import cached_paths, free_disk, is_offline
from models.hub.download import download
from models.hub.offers import Offer, Offers, offers_of
from models.hub.pulled import install, is_current, source_of
from models.hub.reference import parse_reference
from models.hub.repository import RemoteRepository, check_access, repository
from models.hub.variants import Variant, matching, offered, variants_of


@click.command()
@click.argument("reference", metavar="USER/REPO[:QUANT]")
@click.option("--revision", help="Branch, tag or commit, instead of the main branch.")
@click.option("--context", type=click.IntRange(1, 2**31 - 1), help="Tokens of context that the fit counts with.")
@click.option("--yes", is_flag=True, help="Take the recommended quantization without asking.")
@click.option("--list", "only_list", is_flag=True, help="Show the quantizations and how they fit, and stop.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and ask nothing.")
def pull(reference: str, revision: str | None, context: int | None, yes: bool, only_list: bool, as_json: bool) -> int:
    """Download a model from the Hugging Face hub.

    QUANT is a quantization, such as Q4_K_M, or the name of a file; without it, the ones that the repository has are
    shown, with how they fit this machine, to choose from. hf.co/USER/REPO:QUANT and the address of a file work too.
    A download that was stopped goes on where it was.
    """
    tolerate_encoding()
    asked = parse_reference(reference, revision)
    status = StatusLine()
    status.show(f"Asking the hub about {asked.repository}")
    try:
        remote = repository(asked)
        variants = _wanted(remote)
        catalogue = Catalogue()
        if len(variants) == 1 and not only_list:
            present = catalogue.find(source_of(remote, variants[0]))
            if present and is_current(present, remote, variants[0]):
                status.clear()
                _write_result(present, downloaded=False, as_json=as_json)
                return 0
        if not only_list:
            check_access(remote)
        offers = offers_of(remote, variants, context, Machine.now())
    finally:
        status.clear()
    if only_list and as_json:
        write_json(offers_as_dict(remote, offers))
        return 0
    if only_list or (len(variants) > 1 and not as_json):
        write_offers(remote, offers, _installed_names(catalogue, remote, variants))
    if only_list:
        return 0
    asks = not yes and not as_json and can_ask()
    offer = _choose(offers) if len(variants) > 1 and asks else offers.recommended
    return _pull(catalogue, remote, offer, offers, as_json=as_json, status=status)


def _wanted(remote: RemoteRepository) -> list[Variant]:
    """The variants that the user may mean. Raises HubError if there is none."""
    variants = variants_of(remote.files)
    wanted = remote.reference.variant
    if not variants:
        raise HubError(_no_gguf(remote))
    found = matching(variants, wanted) if wanted else offered(variants)
    if wanted and not found:
        names = listed(one_line(variant.name) for variant in variants)
        if is_offline():
            raise HubError(
                f"{quoted(str(remote.reference))} is not in the cache, which has only {names}, and HF_HUB_OFFLINE "
                "keeps Octavo off the network: unset it."
            )
        raise HubError(f"There is no {quoted(wanted)} in {remote.name}, only {names}.")
    return found


def _no_gguf(remote: RemoteRepository) -> str:
    if is_offline():
        return f"The cache has no GGUF file of {quoted(remote.name)}, and HF_HUB_OFFLINE keeps Octavo off the network."
    if any(file.name.endswith(".safetensors") for file in remote.files):
        return (
            f"{quoted(remote.name)} has no GGUF files but safetensors: 'octavo quantize {remote.name} Q4_K_M' makes "
            "one of them, and 'octavo search' finds repositories that have them."
        )
    return f"{quoted(remote.name)} has no GGUF files: 'octavo search' finds repositories that do."


def _choose(offers: Offers) -> Offer:
    """Ask until the answer is one of the offers. Raises click.Abort."""
    name = one_line(offers.recommended.variant.name)
    question = f"Which one? A number or a name; Enter takes {name}"
    return ask(question, lambda answer: offer_meant(answer, offers))


def offer_meant(answer: str, offers: Offers) -> Offer:
    """The offer of that number or name; the recommended one if the answer is empty. Raises click.UsageError."""
    if not answer:
        return offers.recommended
    if answer.isdecimal() and 1 <= int(answer) <= len(offers.offers):
        return offers.offers[int(answer) - 1]
    found = matching([offer.variant for offer in offers.offers], answer)
    if len(found) == 1:
        return next(offer for offer in offers.offers if offer.variant is found[0])
    raise click.UsageError(f"Give a number from 1 to {len(offers.offers)}, or a name from the list.")


def _pull(
    catalogue: Catalogue, remote: RemoteRepository, offer: Offer, offers: Offers, *, as_json: bool, status: StatusLine
) -> int:
    variant = offer.variant
    present = catalogue.find(source_of(remote, variant))
    if present and is_current(present, remote, variant):
        _write_result(present, downloaded=False, as_json=as_json)
        return 0
    if offer.fit in (Fit.TIGHT, Fit.TOO_LARGE):
        status.note(_fit_warning(offer, offers))
    cached = cached_paths(remote.name, remote.commit, variant.files)
    replaced = present and present.path.is_file()
    if present and replaced:
        status.note(f"The hub has another version of {quoted(present.name)} than the installed one.")
    paths = cached or _download(remote, variant, status)
    GgufFile.open(paths[0])
    model = install(catalogue, remote, variant, paths)
    if replaced:
        status.note("The earlier version is still in huggingface_hub's cache; 'hf cache prune' removes it.")
    _write_result(model, downloaded=cached is None, as_json=as_json)
    return 0


def _download(remote: RemoteRepository, variant: Variant, status: StatusLine) -> tuple[Path, ...]:
    """Raises HubError or DownloadError; click.Abort after Ctrl-C."""
    parts = f" in {len(variant.files)} files" if len(variant.files) > 1 else ""
    size, free = format_bytes(variant.n_bytes), format_bytes(free_disk())
    status.note(f"Downloading {one_line(variant.stem)}.gguf: {size}{parts}; {free} of disk are free.")
    try:
        with byte_progress() as bars:
            bar = bars.add_task(label(variant.stem), total=variant.n_bytes)

            def progress(done: int, total: int) -> None:
                bars.update(bar, completed=done, total=total)

            return download(remote.name, remote.reference.revision, variant.files, progress)
    except KeyboardInterrupt:
        status.note("Stopped; the same command goes on where this one was.")
        raise click.Abort from None


def _fit_warning(offer: Offer, offers: Offers) -> str:
    needs = f"{offer.variant.name} needs about {format_bytes(offer.needed)} with {offers.context:,} tokens of context"
    return f"{needs}, and {format_bytes(offers.machine.available)} are free: {offer.fit}."


def _write_result(model: InstalledModel, *, downloaded: bool, as_json: bool) -> None:
    if as_json:
        write_json(_as_dict(model, downloaded))
        return
    already = "" if downloaded else "already "
    write_text(f"{model.name} is {already}here ({format_bytes(model.n_bytes)}).\n")
    write_text(f'To run it: octavo run {model.name} "Why is the sky blue?"\n')


def _as_dict(model: InstalledModel, downloaded: bool) -> dict[str, Any]:
    return {
        "name": model.name,
        "source": model.source,
        "files": [str(file) for file in model.files],
        "bytes": model.n_bytes,
        "downloaded": downloaded,
    }


def _installed_names(catalogue: Catalogue, remote: RemoteRepository, variants: Sequence[Variant]) -> frozenset[str]:
    sources = {model.source.lower() for model in catalogue.models()}
    return frozenset(variant.name for variant in variants if source_of(remote, variant).lower() in sources)
