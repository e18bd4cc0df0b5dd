"""What a model reads of a session: instructions and prompts. Also converts stored conversations to ACP updates."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from acp.helpers import (
    ContentBlock,
    SessionUpdate,
    audio_block,
    image_block,
    update_agent_message_text,
    update_agent_thought_text,
    update_user_message,
    update_user_message_text,
)
from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from toolcrib.adapters.pydantic_ai.toolset import NAME_OF
from toolcrib.agent.session import Session
from toolcrib.operations.briefing import Top, instructions
from toolcrib.operations.operation_table import DEFAULT_SET, SETS
from toolcrib.surfaces.acp_agent.editor_updates import PLAN, CallUpdates, progressed, stored_plan_update

TITLE_CHARS = 80

TOP_BYTES = 600
"""Room for the top-level categories, in bytes of JSON. All instructions and tools together stay below 1,200 tokens."""

_WHERE = "You work with a person in their editor, in the folder {cwd}. Paths that you give to tools are absolute."

_HOW = (
    "Do the work with tools instead of explaining how; the person sees every call and may be asked before it runs. "
    "If the person rejects a call, do not try the same in another way. If the work needs more than a few steps, show "
    "them with {plan} and keep that current. At the end, say in a few words what you did."
)


def prompt_content(blocks: Sequence[ContentBlock]) -> list[UserContent]:
    """Convert the content of a prompt for a model. Linked resources are named; embedded ones are included in full.

    Lone surrogates are replaced by `?`: JSON can contain them, but requests to models cannot.
    """
    parts = [part for block in blocks for part in _parts(block)]
    return [part.encode("utf-8", "replace").decode() if isinstance(part, str) else part for part in parts]


def title_of(content: Iterable[UserContent]) -> str:
    """Return a title for a conversation that begins with `content`: its first `TITLE_CHARS` characters."""
    text = " ".join(" ".join(part for part in content if isinstance(part, str)).split())
    return text if len(text) <= TITLE_CHARS else f"{text[: TITLE_CHARS - 1]}…"


def _parts(block: ContentBlock) -> Iterator[UserContent]:
    match block:
        case TextContentBlock(text=text):
            yield text
        case ImageContentBlock(data=data, mime_type=mime_type) | AudioContentBlock(data=data, mime_type=mime_type):
            yield _file(data, mime_type)
        case ResourceContentBlock():
            about = f" ({block.description})" if block.description else ""
            yield f"[{block.title or block.name}]({block.uri}){about}"
        case EmbeddedResourceContentBlock(resource=TextResourceContents(uri=uri, text=text)):
            yield f"The content of {uri}:\n\n{text}\n\n(end of {uri})"
        case EmbeddedResourceContentBlock(resource=BlobResourceContents(uri=uri, blob=blob, mime_type=mime_type)):
            yield f"The content of {uri}:"
            yield _file(blob, mime_type or "application/octet-stream")
        case _:
            yield "(unsupported content type)"


def _file(data: str, mime_type: str) -> UserContent:
    try:
        return BinaryContent(base64.b64decode(data, validate=True), media_type=mime_type)
    except (binascii.Error, ValueError):
        return f"(a file of type {mime_type} that is not valid base64)"


def replayed(messages: Sequence[ModelMessage], showing: CallUpdates) -> Iterator[SessionUpdate]:
    """Replay a conversation as updates, in order. Calls without a result are shown as failed."""
    parts = (part for message in messages if isinstance(message, ModelRequest) for part in message.parts)
    answered = {part.tool_call_id for part in parts if isinstance(part, ToolReturnPart)}
    for message in messages:
        for part in message.parts:
            match part:
                case UserPromptPart(content=content):
                    yield from _replayed_prompt([content] if isinstance(content, str) else content)
                case TextPart(content=str() as text) if text:
                    yield update_agent_message_text(text)
                case ThinkingPart(content=str() as text) if text:
                    yield update_agent_thought_text(text)
                case ToolCallPart(tool_name=name) if name == PLAN:
                    if (plan := stored_plan_update(part)) is not None:
                        yield plan
                case ToolCallPart(tool_call_id=call_id):
                    yield (begun := showing.begun(part))
                    if call_id not in answered:
                        yield progressed(begun.tool_call_id, status="failed")
                case ToolReturnPart(tool_name=name) if isinstance(message, ModelRequest) and name != PLAN:
                    yield showing.ended(part)
                case _:
                    continue


def _replayed_prompt(content: Sequence[UserContent]) -> Iterator[SessionUpdate]:
    """Replay what the person sent: text first, then images and audio."""
    if text := "\n".join(each for each in content if isinstance(each, str)):
        yield update_user_message_text(text)
    for each in content:
        match each:
            case BinaryContent(is_image=True):
                yield update_user_message(image_block(each.base64, each.media_type))
            case BinaryContent(is_audio=True):
                yield update_user_message(audio_block(each.base64, each.media_type))
            case _:
                continue


def model_instructions(session: Session, cwd: Path, roots: Iterable[Path], plan: str) -> str:
    """Return the model's instructions: its folders, the rules, and the top-level categories."""
    where = _WHERE.format(cwd=cwd)
    if more := ", ".join(str(root) for root in roots):
        where += f" These folders also belong to the project: {more}."
    nodes = session.dispatcher.operations.list(session.view()).nodes
    tops = [Top(each.node.name, each.node.summary) for each in nodes]
    rules = instructions(SETS[DEFAULT_SET], tops, room=TOP_BYTES)
    return f"{where}\n{_HOW.format(plan=plan)}\n\n{_under_own_names(rules)}"


def _under_own_names(text: str) -> str:
    for operation, name in NAME_OF.items():
        text = re.sub(rf"\b{operation}\b", name, text)
    return text
