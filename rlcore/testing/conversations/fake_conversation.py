"""A conversation that asks the same question again."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from rlcore.contracts.conversation import Conversation, ConversationSteps, Transcript
from rlcore.contracts.types import Message

__all__ = ["FakeConversation", "FakeConversationOptions"]


class FakeConversationOptions(BaseModel):
    """Options of the ``fake`` conversation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: int = Field(default=2, ge=1, description="How often the policy is asked.")
    saying: str = Field(default="a", description="The text that it receives between two answers.")
    tokens: int | None = Field(default=None, ge=1, description="Tokens of one answer; none: as many as there is room for.")


class FakeConversation(Conversation):
    """Asks, says the same, asks again. The reward gets the answers as ``extra["answers"]`` and a turn reward of the answer's length."""

    def __init__(self, options: FakeConversationOptions | None = None) -> None:
        self.options = options if options is not None else FakeConversationOptions()
        self.max_turns = self.options.rounds

    def converse(self, transcript: Transcript) -> ConversationSteps:
        """See Conversation."""
        answers = [(yield from transcript.ask(self.options.tokens))]
        while len(answers) < self.options.rounds and transcript.say(Message(role="user", content=self.options.saying)):
            answers.append((yield from transcript.ask(self.options.tokens)))
        return transcript.dialogue(turn_rewards=[float(len(answer)) for answer in answers], extra={"answers": answers})
