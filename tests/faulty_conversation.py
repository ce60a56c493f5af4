"""A plugin module that offers a conversation with one fault, which an option chooses: the core must notice it and name it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import ConversationSpec, hookimpl
from rlcore.contracts.conversation import Conversation, ConversationSteps, Dialogue, Transcript, Turn
from rlcore.contracts.types import Message

rlcore_api = "2.0"


@hookimpl
def rlcore_register_conversations() -> list[ConversationSpec]:
    """Return the conversation."""
    return [
        ConversationSpec(
            name="faulty",
            target="tests.faulty_conversation:FaultyConversation",
            config="tests.faulty_conversation:FaultyConversationOptions",
            summary="Two turns with one fault, chosen by option.",
        )
    ]


class FaultyConversationOptions(BaseModel):
    """Options of the ``faulty`` conversation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fault: Literal["raises", "text", "endless", "hot", "wide", "mute", "unmasked", "plain", "miscounts", "object"] = Field(
        ...,
        description="raises: after its first turn; text: yields a text; endless: asks for one token again and again; hot: asks at twice "
        "the temperature; wide: asks for more tokens than there is room for; mute: ends before its first turn; unmasked: marks what it "
        "said itself as the policy's; plain: returns a text; miscounts: gives one turn reward too many; object: its extra is not plain.",
    )


class FaultyConversation(Conversation):
    """A conversation of two turns with one fault."""

    max_turns = 3

    def __init__(self, options: FaultyConversationOptions) -> None:
        self.fault = options.fault

    def converse(self, transcript: Transcript) -> ConversationSteps:
        """See Conversation."""
        if self.fault == "mute":
            return Dialogue(segments=(), messages=())
        yield from self._wrong_turn(transcript)
        yield from transcript.ask(1)
        if self.fault == "raises":
            raise LookupError("the faulty conversation lost its thread")
        while self.fault == "endless":
            yield Turn(transcript.context_ids, replace(transcript.sampling, max_new_tokens=1))
        transcript.say(Message(role="user", content="a"))
        dialogue = transcript.dialogue(turn_rewards=(1.0, 1.0) if self.fault == "miscounts" else ())
        segment = replace(dialogue.segments[0], policy_mask=np.ones(len(dialogue.segments[0].token_ids), np.bool_))
        spoilt: dict[str, Any] = {
            "unmasked": replace(dialogue, segments=(segment,), turn_lengths=()),
            "plain": "done",
            "object": replace(dialogue, extra={"x": object()}),
        }
        said: Dialogue = spoilt.get(self.fault, dialogue)
        return said

    def _wrong_turn(self, transcript: Transcript) -> Any:
        sampling = transcript.sampling
        if self.fault == "text":
            yield "how many?"
        elif self.fault == "hot":
            yield Turn(transcript.context_ids, replace(sampling, temperature=2 * sampling.temperature))
        elif self.fault == "wide":
            yield Turn(transcript.context_ids, replace(sampling, max_new_tokens=sampling.max_new_tokens + 1))
