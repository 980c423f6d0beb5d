"""Ctrl-C in an external editor is the editor's."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from app.chat.writing.editor import edited

_INTERRUPTS_US = "import os, signal; os.kill(os.getppid(), signal.SIGINT)"


@pytest.mark.skipif(sys.platform == "win32", reason="has no such signals")
def test_an_interrupt_while_the_editor_runs_does_not_end_the_app() -> None:
    async def run() -> None:
        heard: list[str] = []
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, heard.append, "interrupt")
        assert edited("text", [sys.executable, "-c", _INTERRUPTS_US]) == "text"
        await asyncio.sleep(0.01)
        assert heard == []
        os.kill(os.getpid(), signal.SIGINT)
        while not heard:
            await asyncio.sleep(0.01)

    asyncio.run(run())
