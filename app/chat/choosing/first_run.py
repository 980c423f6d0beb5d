"""What to offer somebody who has no chat yet: the models that are installed, and some to download."""

from __future__ import annotations

from dataclasses import dataclass

from app.chat.preferences.settings import ChatSettings
from app.chat.storage.store import ChatStore
from engine.errors import OctavoError
from engine.memory import available_memory
from models.catalogue import Catalogue, InstalledModel, Origin
from models.fit import Fit, FitEstimate, Machine, advice_context, estimate
from models.hub.recommended import RECOMMENDED, RecommendedModel
from models.locate import locate


@dataclass(frozen=True)
class FirstModel:
    """A model to begin with. model: for ChatSettings.model, None is the starter model. download: if it is not here."""

    title: str
    about: str
    n_bytes: int
    fit: Fit
    model: str | None = None
    download: RecommendedModel | None = None


def wants_welcome(store: ChatStore, settings: ChatSettings) -> bool:
    """Whether there is no chat yet, and no model that the user has asked for. Raises StoreError."""
    if store.chats() or store.chats(archived=True):
        return False
    return settings.model is None or not _is_there(settings.model)


def first_models() -> list[FirstModel]:
    """Installed models, the starter model last of them, then those to download that are not installed."""
    machine = Machine(available_memory(), 0)  # asking for a GPU would load native code into this process
    try:
        installed = Catalogue().models()
    except OctavoError:
        installed = []  # whoever wants one of them is told then
    sources = {model.source.lower() for model in installed}
    offered = sorted(installed, key=lambda model: model.origin is Origin.STARTER)
    return [
        *(_installed(model, machine) for model in offered),
        *(_recommended(model, machine) for model in RECOMMENDED if model.reference.lower() not in sources),
    ]


def _installed(model: InstalledModel, machine: Machine) -> FirstModel:
    fit: FitEstimate = estimate(model.n_bytes, 0, 0, machine)
    if model.origin is Origin.STARTER:
        return FirstModel("Starter model", "tiny, to try Octavo out", model.n_bytes, fit.fit)
    return FirstModel(model.name, "installed", model.n_bytes, fit.fit, model=model.name)


def _recommended(model: RecommendedModel, machine: Machine) -> FirstModel:
    fit: FitEstimate = estimate(model.n_bytes, model.kv_bytes, advice_context(model.context), machine)
    return FirstModel(model.title, model.about, model.n_bytes, fit.fit, download=model)


def _is_there(model: str) -> bool:
    try:
        locate(model)
    except OctavoError:
        return False
    return True
