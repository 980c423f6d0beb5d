"""`octavo run` for one prompt: stream its answers, or print them as JSON."""

from __future__ import annotations

import queue

from app.answers import Answers, to_json
from app.terminal import Interrupted, StatusLine, interrupts_to, write_line, write_text
from engine.client import EngineClient
from engine.messages import Failed, Finished, Loaded, Notice, TextDelta, TextEvent, TextRequest
from engine.sequence import FinishReason, PrefillEvent


def run_prompt(
    client: EngineClient, request: TextRequest, loaded: Loaded, model: str, status: StatusLine, *, as_json: bool
) -> int:
    """Answer one request on standard output and return the exit code. Raises OctavoError when it fails."""
    inbox: queue.SimpleQueue[TextEvent | Interrupted] = queue.SimpleQueue()
    answers = Answers(request.n)
    printer = None if as_json else AnswerPrinter(request.n)
    code = 0
    try:
        with interrupts_to(inbox.put):
            request_id = client.submit(request, inbox.put)
            while not answers.complete:
                match inbox.get():
                    case Interrupted() as interrupt:
                        client.cancel(request_id)
                        code = interrupt.exit_code
                    case PrefillEvent(_, done, total, _) if done < total:
                        status.show(f"Reading the prompt: {done:,} of {total:,} tokens")
                    case TextDelta(_, index, text) if printer:
                        status.clear()
                        printer.write(index, text)
                    case Finished() as answer:
                        answers.add(answer)
                        if printer:
                            status.clear()
                            printer.end(answer.index)
                    case Notice(_, text):
                        status.note(text)
                    case Failed(_, error):
                        raise error
    finally:
        status.clear()
        if printer:
            printer.close()
    if as_json:
        write_line(to_json(answers.as_dict(loaded.engine, model)))
    else:
        status.note(_summary(answers, request.max_tokens))
    return code


class AnswerPrinter:
    """Answers to standard output in their order, each streamed while it is its turn; several have headings."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._turn = 0
        self._headed = n == 1
        self._held = [""] * n
        self._ended: set[int] = set()
        self._in_line = False

    def write(self, index: int, text: str) -> None:
        """A piece of the answer at `index`, shown now or when its turn comes."""
        self._held[index] += text
        self._show()

    def end(self, index: int) -> None:
        """The answer at `index` is complete."""
        self._ended.add(index)
        self._show()

    def close(self) -> None:
        """Finish the line that is begun."""
        if self._in_line:
            write_text("\n")
            self._in_line = False

    def _show(self) -> None:
        while self._turn < self._n:
            ended = self._turn in self._ended
            if self._held[self._turn] or ended:
                self._print(self._held[self._turn])
                self._held[self._turn] = ""
            if not ended:
                return
            self.close()
            self._turn += 1
            self._headed = False

    def _print(self, text: str) -> None:
        if not self._headed:
            write_text(f"[{self._turn + 1} of {self._n}]\n")
            self._headed = True
        if text:
            write_text(text)
            self._in_line = not text.endswith("\n")


def _summary(answers: Answers, max_tokens: int | None) -> str:
    figures = answers.figures()
    parts = [f"{figures.generated_tokens:,} tokens"]
    if figures.decode_tok_s is not None:
        parts.append(f"{figures.decode_tok_s:.1f} tok/s")
    if figures.ttft_s is not None:
        parts.append(f"TTFT {figures.ttft_s:.2f} s")
    parts.append(f"prompt {figures.reused_tokens:,} reused + {figures.computed_tokens:,} computed")
    ends = {"cut at --max-tokens": 0, "cut where the context was full": 0, "cancelled": 0}
    for answer in answers.in_order:
        if answer.reason is FinishReason.CANCELLED:
            ends["cancelled"] += 1
        elif answer.reason is FinishReason.LENGTH:
            at_limit = answer.stats.generated_tokens == max_tokens
            ends["cut at --max-tokens" if at_limit else "cut where the context was full"] += 1
    n = len(answers.in_order)
    parts += [what if n == 1 else f"{count} of {n} {what}" for what, count in ends.items() if count]
    return ", ".join(parts)
