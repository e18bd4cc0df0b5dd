"""A program that plays one conversation, is killed at each of its events in turn, and continues in a new process.

Run as `python -m tests.agent.loop.interrupted DELIVERY FOLDER`; the result is written to standard output as JSON.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
from tests.agent.loop.playing import WAYS, Step, Way, by_name_or_handle, read, turn, wire

from toolcrib import Toolcrib
from toolcrib.agent.conversation.conversation import ConversationState
from toolcrib.agent.conversation.events import ConversationEvent
from toolcrib.agent.conversation.messages import ModelRequest, ModelTurn, UserMessage
from toolcrib.agent.loop.main import MainLoop
from toolcrib.agent.sections import MarkdownSection, PromptTemplate, SectionVisibility

_TRACE = re.compile(r"(@[0-9a-f]{24})\.[0-9a-f]+")
"""Handles contain the trace in which they were created, which is random."""


class Play:
    """One part of the conversation, in its own process; only its folder survives."""

    def __init__(self, way: Way, folder: Path, kill_at: int | None) -> None:
        self.way, self.folder, self.kill_at = way, folder, kill_at
        self.events = 0

    def note(self, name: str, text: str) -> None:
        with (self.folder / name).open("a") as file:
            file.write(json.dumps(text) + "\n")

    async def tool(self, text: str) -> str:
        """Do something that must not be done twice."""
        self.note("ran", text)
        return f"did {text}"

    async def extra(self, text: str) -> str:
        """Do something else."""
        return await self.tool(f"extra {text}")

    def answer(self, request: ModelRequest) -> ModelTurn:
        """Answer from the request alone, so that the answer is the same after a restart."""
        self.note("sent", _TRACE.sub(r"\1", wire(request)))
        return turn(request, self.step(request))

    def step(self, request: ModelRequest) -> Step:
        match sum(message.to_wire()["role"] == "assistant" for message in request.messages):
            case 0:
                return [("tool", {"text": "a"}), read("more"), ("extra", {"text": "early"}), ("tool", {"text": "b"})]
            case 1:
                made = by_name_or_handle(request, "extra", {"text": "c"})
                assert made is not None
                return [made, read("more"), ("tool", "{"), read("other"), ("expand_tool", {"tool_id": "x"})]
            case 2:
                return "three"
            case _:
                told = request.messages[-1]
                assert isinstance(told, UserMessage)
                return '{"total": 3}'

    def listen(self, event: ConversationEvent) -> None:
        saving = self.folder / "saving"
        saving.write_text(self.session.to_json())
        saving.replace(self.folder / "saved")
        self.events += 1
        if self.events == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    async def run(self) -> None:
        saved = self.folder / "saved"
        self.session = Toolcrib().session(saved=saved.read_text() if saved.exists() else None)
        self.session.conversation.subscribe(self.listen)
        summary = SectionVisibility.SUMMARY
        more = MarkdownSection("More", "more", "All.", "Short.", summary, (self.extra,))
        other = MarkdownSection("Other", "other", "Rest.", "Short.", summary, (self.more_of_it,))
        task = MarkdownSection("Task", "task", "Do it.", tools=(self.tool,))
        template = PromptTemplate[dict[str, int]]("tests", "killed", [task, more, other])
        adapter = self.way.adapter(self.answer)
        response = await MainLoop().execute(template.bind(), session=self.session, adapter=adapter, request="Go.")
        (self.folder / "output").write_text(json.dumps(response.output))

    async def more_of_it(self) -> str:
        """Do even more."""
        return "more"


def run_forked(play: Play) -> int:
    """Continue the play in a forked process, and return its exit code."""
    if (child := os.fork()) == 0:
        anyio.run(play.run)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def lines(folder: Path, name: str) -> list[str]:
    file = folder / name
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def outcome_of(folder: Path) -> dict[str, Any]:
    return {
        "sent": lines(folder, "sent"),
        "ran": lines(folder, "ran"),
        "saved": _TRACE.sub(r"\1", (folder / "saved").read_text()),
        "output": json.loads((folder / "output").read_text()) if (folder / "output").exists() else None,
    }


def main(way: Way, folder: Path) -> None:
    def fresh(name: str) -> Path:
        made = folder / name
        made.mkdir()
        return made

    whole = Play(way, fresh("whole"), None)
    anyio.run(whole.run)  # in this process, so that forked processes have all imports; it leaves no thread
    parts: list[dict[str, Any]] = []
    for kill_at in range(1, whole.events):  # after the last event the conversation has ended
        place = fresh(str(kill_at))
        ended = run_forked(Play(way, place, kill_at))
        before = outcome_of(place)
        state = ConversationState.from_json(before["saved"])
        before |= {"ended": ended, "open": len(state.open_calls), "turns": state.turns}
        before["finished"] = [message.content for _, message in state.finished_calls]
        assert run_forked(Play(way, place, None)) == 0
        parts.append({"before": before, "after": outcome_of(place)})
    print(json.dumps({"whole": outcome_of(folder / "whole"), "parts": parts}))


if __name__ == "__main__":
    main(next(way for way in WAYS if str(way) == sys.argv[1]), Path(sys.argv[2]))
