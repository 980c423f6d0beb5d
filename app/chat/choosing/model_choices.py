"""The installed models, as choices for a chat."""

from __future__ import annotations

from app.chat.choosing.choice import Choice
from engine.errors import OctavoError
from engine.units import format_bytes, short_count
from models.catalogue import Catalogue, InstalledModel
from models.fit import Machine, advice_context, estimate
from models.inspect import inspect_model
from models.locate import check_present


def model_choices() -> list[Choice]:
    """Every installed model; what cannot be used says why. Reads the head of each file. Raises CatalogueError."""
    models = Catalogue().models()
    machine = Machine.now() if models else Machine(0, 0)
    return [_choice(model, machine) for model in models]


def _choice(model: InstalledModel, machine: Machine) -> Choice:
    try:
        summary = inspect_model(check_present(model).files)
    except OctavoError as error:
        return Choice(model.name, model.name, str(error), is_usable=False)
    context = advice_context(summary.context or 0)
    fit = estimate(summary.weight_bytes, summary.kv_bytes_per_token or 0, context, machine).fit
    details = (
        format_bytes(model.n_bytes),
        short_count(summary.parameters),
        summary.quantization,
        str(summary.engine),
        str(fit),
    )
    return Choice(model.name, model.name, " · ".join(filter(None, details)))
