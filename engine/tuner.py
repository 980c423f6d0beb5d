"""Settings of an engine on the CPU: remembered from an earlier start, else measured while the model is loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

from engine.attention_probe import measure_attention
from engine.config import EngineConfig
from engine.devices import Device
from engine.forward_probe import CHUNK_LAYERS, ForwardProbe
from engine.gguf_file import GgufFile
from engine.kv_pool import KvLayout
from engine.plan import ModelPlan
from engine.processor import processor_name
from engine.threads import usable_cores, usable_processors
from engine.tuning import (
    DEFAULT_CHUNK_TOKENS,
    Tuning,
    TuningReport,
    choose_attention,
    smallest_nearly_best,
)
from engine.tuning_file import recall, remember, tuning_key
from engine.weights import Weights

_SECONDS = 0.7
"""Time to measure threads, the same for attention, and twice that for chunks. What takes longer is left out, or in the
case of attention, has two turns."""

_SECONDS_AT_LEISURE = 8.0
"""The same for a user who asked for it."""


class Tuner:
    """Chooses the settings of one model on one device. Without a file it measures nothing and has defaults."""

    def __init__(self, file: GgufFile, plan: ModelPlan, device: Device, layout: KvLayout, config: EngineConfig) -> None:
        self._file = file
        self._plan = plan
        self._device = device
        self._config = config
        self._candidates = thread_candidates(config.threads)
        self._seconds = _SECONDS_AT_LEISURE if config.retune else _SECONDS
        self._tuning = Tuning(config.threads or usable_cores())
        self._path = config.tuning_file if layout is KvLayout.PACKED and device.kind == "cpu" else None
        self.report: TuningReport | None = None
        """What was measured, if anything was."""
        self.measures = False
        """Whether `tune` will measure."""
        if self._path is None:
            return
        self._processor = processor_name()
        self._key = tuning_key(file, plan, layout.types(config.kv_type), self._candidates, self._processor)
        remembered = None if config.retune else recall(self._path, self._key)
        self._tuning = remembered or self._tuning
        self.measures = remembered is None

    def tune(self, weights: Weights, progress: Callable[[float], None]) -> Tuning:
        """The settings to use. `progress` gets the fraction of the measurement that is done. Raises MemoryLimitError."""
        if self.measures and self._path is not None:
            report = self._measure(weights, progress)
            self._tuning = report.tuning
            self.report = replace(report, remembered=remember(self._path, self._key, self._tuning))
        return self._tuning

    def _measure(self, weights: Weights, progress: Callable[[float], None]) -> TuningReport:
        def part(index: int) -> Callable[[float], None]:
            return lambda done: progress((index + done) / 3)

        n_bytes = sum(tensor.n_bytes for tensor in self._file.tensors.values())
        probe = ForwardProbe(self._plan, weights, n_bytes, self._device, self._config.kv_type)
        with contextlib.closing(probe):
            threads = ()
            n_threads = self._candidates[0]
            if len(self._candidates) > 1:
                threads = probe.threads(self._candidates, seconds=self._seconds, progress=part(0))
            if threads:
                n_threads = smallest_nearly_best(threads)
            attention = measure_attention(
                self._plan,
                self._device,
                self._config.kv_type,
                n_threads,
                seconds=self._seconds,
                progress=part(1),
            )
            choice = choose_attention(attention)
            chunks = probe.chunks(n_threads, choice, seconds=2 * self._seconds, progress=part(2))
        chunk_tokens = smallest_nearly_best(chunks) if chunks else DEFAULT_CHUNK_TOKENS
        return TuningReport(
            Tuning(n_threads, choice, chunk_tokens),
            self._processor,
            attention,
            chunks,
            min(CHUNK_LAYERS, len(self._plan.layers)),
            threads,
            probe.n_layers,
            len(self._plan.layers),
        )


def thread_candidates(wanted: int | None) -> tuple[int, ...]:
    """Numbers of threads to choose from, the likeliest first: what the user wants leaves no choice.

    Else one for each physical performance core, one fewer, and where that is more, one for every processor.
    """
    if wanted is not None:
        return (wanted,)
    cores = usable_cores()
    numbers = [cores, cores - 1, usable_processors()]
    return tuple(dict.fromkeys(n for n in numbers if n > 0))
