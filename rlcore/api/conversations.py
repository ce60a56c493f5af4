"""Conversations: what the author of one needs. docs/conversations.md is the manual.

A plugin registers a ``ConversationSpec`` by ``rlcore_register_conversations``; its target is a ``Conversation``, made with its options if
its spec names a model. ``rlcore.testing.ConversationSuite`` checks the rules.

>>> class Twice(Conversation):
...     def converse(self, transcript):
...         first = yield from transcript.ask()
...         if transcript.say(Message(role="user", content="again")):
...             yield from transcript.ask()
...         return transcript.dialogue(extra={"first": first})
"""

from __future__ import annotations

from rlcore.contracts.conversations import Conversation, Dialogue, Talk, Transcript, Turn
from rlcore.contracts.specs import ConversationSpec
from rlcore.contracts.types import Message

__all__ = ["Conversation", "ConversationSpec", "Dialogue", "Message", "Talk", "Transcript", "Turn"]
