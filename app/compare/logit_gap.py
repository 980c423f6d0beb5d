"""How near two tokens were where two answers part: llama.cpp's logits there, computed in a process of its own."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from app.compare.lanes import Stopped
from engine.config import EngineConfig
from engine.messages import TextRequest

_PATIENCE = 0.1


class GapCase(NamedTuple):
    """After the prompt of `request` and the tokens `before`, one answer has `token` and the reference another one."""

    request: TextRequest
    before: tuple[int, ...]
    token: int
    reference_token: int


def measure_gaps(path: Path, config: EngineConfig, cases: Sequence[GapCase], stopped: Stopped) -> list[float] | None:
    """Of each case the reference token's logit less the other one's; None when that fails or is stopped.

    config: of the engine that gave the reference.
    """
    code = f"import sys; sys.path[:] = {sys.path!r}; from app.compare.logit_gap import main; main()"
    with tempfile.TemporaryFile() as job, tempfile.TemporaryFile() as result:
        pickle.dump((path, config, tuple(cases)), job)
        job.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=job, stdout=result, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            while process.poll() is None and not stopped():
                try:
                    process.wait(_PATIENCE)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            process.kill()
            exit_code = process.wait()
        result.seek(0)
        lines = result.read().splitlines()
    if exit_code != 0 or not lines:
        return None
    gaps: list[float] = json.loads(lines[-1])
    return gaps


def main() -> None:
    """The process: the job comes on standard input, the gaps are the last line of standard output."""
    from engine.generation import prompt_of  # noqa: PLC0415 - native code
    from engine.llama_context import CHUNK, LlamaContext  # noqa: PLC0415
    from engine.tokenizer import Tokenizer  # noqa: PLC0415

    path, config, cases = pickle.load(sys.stdin.buffer)
    llama = LlamaContext(str(path), config, lambda _: None, flash=config.flash)
    tokenizer = Tokenizer(str(path))
    gaps = []
    computed: list[int] = []
    for case in cases:
        tokens = [*prompt_of(case.request, tokenizer).token_ids, *case.before]
        if tokens != computed:  # the logits of one token, computed alone, would be rounded otherwise
            for first in range(llama.reuse_prefix(tokens), len(tokens), CHUNK):
                logits = llama.decode(tokens[first : first + CHUNK])
            computed = tokens
        gaps.append(float(logits[case.reference_token] - logits[case.token]))
    print(json.dumps(gaps))
