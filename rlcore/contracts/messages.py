"""Messages of a chat, and the prompt that is made of them. Modules import them from ``types``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlcore.contracts.pickling import pickled_by_fields
from rlcore.contracts.public_members import PublicMembers

__all__ = ["Message", "Prompt"]


@pickled_by_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Message(metaclass=PublicMembers):
    """One turn of a chat: ``Message(role="user", content="sort 8 3 1 6")``. ``policy``: the policy wrote it, in this rollout.

    ``inserted``: of a message of the policy, the spans (start, end) of ``content`` that it did not write, such as results of tools.

    ``tool_calls`` of an assistant: ``{"type": "function", "function": {"name": …, "arguments": {…}}}`` for each call.
    ``tool_call_id`` and ``name`` of a tool's result: the call that it answers, and the tool; "" if they are not known.
    """

    role: str
    content: str
    policy: bool = False
    tool_calls: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    tool_call_id: str = ""
    name: str = ""
    inserted: tuple[tuple[int, int], ...] = ()

    @property
    def plain_answer(self) -> bool:
        """Whether the policy wrote all of it, it calls no tool and has no name, so that its text says everything."""
        return self.policy and not self.tool_calls and not self.inserted and not self.name

    def plain(self) -> dict[str, Any]:
        """Return the message as chat templates and logs have it: role, content, and the fields of tools that are not empty."""
        calls = {"tool_calls": [dict(call) for call in self.tool_calls]} if self.tool_calls else {}
        told = {name: text for name in ("tool_call_id", "name") if (text := getattr(self, name))}
        return {"role": self.role, "content": self.content, **calls, **told}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt(metaclass=PublicMembers):
    """One checked row of a data set.

    ``index`` is its place in the data set. ``columns`` holds all columns except ``messages`` and ``reward`` (``gt_answer``, ``test_cases``,
    …). ``reward`` is the reward that the row selects for itself. ``source`` is its ``file:line``. ``tools`` are the schemas of the row's
    own tools, which the chat template renders. ``source_index`` is the number of the run's source that it belongs to: its rewards, its
    conversation and its environment are those of this source.
    """

    prompt_id: str
    index: int
    messages: tuple[Message, ...]
    columns: Mapping[str, Any] = field(default_factory=dict)
    reward: str | None = None
    source: str = ""
    tools: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)
    source_index: int = 0
