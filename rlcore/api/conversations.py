"""For authors of conversations.

A plugin registers a ``ConversationSpec`` with ``rlcore_register_conversations``. Its target is a ``Conversation``, made with its options if
its spec names a model. ``rlcore.testing.ConversationSuite`` checks the rules. ``Transcript`` has an example.
"""

from __future__ import annotations

from rlcore.contracts.conversation import Conversation, ConversationContext, ConversationSteps, Dialogue, Transcript, Turn, Wait, following
from rlcore.contracts.specs import ConversationSpec
from rlcore.contracts.types import Message, RolloutBranch

__all__ = [
    "Conversation",
    "ConversationContext",
    "ConversationSpec",
    "ConversationSteps",
    "Dialogue",
    "Message",
    "RolloutBranch",
    "Transcript",
    "Turn",
    "Wait",
    "following",
]
