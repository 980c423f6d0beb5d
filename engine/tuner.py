"""Settings of an engine on the CPU: remembered from an earlier start, else measured while the model is loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

from engine.attention_probe import measure_attention
from engine.config import EngineConfig
from engine.devices import Device
from engine.errors import MemoryLimitError
from engine.forward_probe import CHUNK_LAYERS, ForwardProbe
from engine.gguf_file import GgufFile
from engine.kv_pool import KvLayout
from engine.plan import ModelPlan
from engine.processor import processor_name
from engine.threads import usable_cores, usable_processors
from engine.tuning import (
    DEFAULT_CHUNK_TOKENS,
    Speed,
    Tuning,
    TuningReport,
    choose_attention,
    smallest_nearly_best,
)
from engine.tuning_file import recall, remember, tuning_key
from engine.turns import Effort
from engine.weights import Weights

_AT_START = {"threads": Effort(0.7, 6), "attention": Effort(0.35, 8), "chunks": Effort(1.4, 6)}
"""When a model is loaded that was never measured: three seconds at most."""

_AT_LEISURE = {"threads": Effort(2.0, 20), "attention": Effort(1.0, 30), "chunks": Effort(3.5, 10)}
"""For a user who asked for it."""


class Tuner:
    """Chooses the settings of one model on one device. Without a file it measures nothing and has defaults."""

    def __init__(self, file: GgufFile, plan: ModelPlan, device: Device, layout: KvLayout, config: EngineConfig) -> None:
        self._file = file
        self._plan = plan
        self._device = device
        self._config = config
        self._candidates = thread_candidates(config.threads)
        self._tuning = Tuning(config.threads or usable_cores())
        measurable = layout is KvLayout.PACKED and device.kind == "cpu" and (config.threads or 1) <= usable_processors()
        self._path = config.tuning_file if measurable else None
        self.report: TuningReport | None = None
        """What was measured, if anything was."""
        self.measures = False
        """Whether `tune` will measure."""
        if self._path is None:
            return
        self._processor = processor_name()
        self._key = tuning_key(file, plan, layout.types(config.kv_type), self._candidates, self._processor)
        remembered = None if config.retune else recall(self._path, self._key, self._candidates)
        self._tuning = remembered or self._tuning
        self.measures = remembered is None

    def tune(self, weights: Weights, progress: Callable[[float], None]) -> Tuning:
        """The settings to use. `progress` gets the fraction that is measured, from 0 to 1.

        A start for which memory is too short to measure has the defaults; where the user asked to measure, it raises
        MemoryLimitError.
        """
        if self.measures and self._path is not None:
            try:
                report = self._measure(weights, progress)
            except MemoryLimitError:
                if self._config.retune:
                    raise
                return self._tuning
            self._tuning = report.tuning
            self.report = replace(report, remembered=remember(self._path, self._key, self._tuning))
        return self._tuning

    def _measure(self, weights: Weights, progress: Callable[[float], None]) -> TuningReport:
        def part(index: int) -> Callable[[float], None]:
            return lambda done: progress((index + done) / 3)

        config, effort = self._config, _AT_LEISURE if self._config.retune else _AT_START
        n_bytes = sum(tensor.n_bytes for tensor in self._file.tensors.values())
        threads: tuple[Speed, ...] = ()
        with contextlib.closing(ForwardProbe(self._plan, weights, n_bytes, self._device, config.kv_type)) as probe:
            if len(self._candidates) > 1:
                threads = probe.threads(self._candidates, effort["threads"], part(0))
            n_threads = smallest_nearly_best(threads) if threads else self._candidates[0]
            attention = measure_attention(
                self._plan, self._device, config.kv_type, n_threads, effort["attention"], part(1)
            )
            choice = choose_attention(attention)
            chunks = probe.chunks(n_threads, choice, effort["chunks"], part(2))
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
