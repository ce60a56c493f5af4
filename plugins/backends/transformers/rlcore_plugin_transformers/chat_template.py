"""The chat template of a tokenizer: the form of its messages, its variables and its tools.

Most templates expect the content of a message as text. Some loop over parts, ``[{"type": "text", "text": …}]``; given a text, such a
template renders nothing of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rlcore.api import ConfigError, DataError, Message
from rlcore.api.data import tools_of
from rlcore.api.settings import closest

__all__ = ["ChatTemplate", "TemplateSettings", "read_template", "read_tools"]

PROBE = "probe7text"
_OWN = {
    *("messages", "conversation", "tools", "chat_template", "add_generation_prompt", "continue_final_message", "tokenize", "padding"),
    *("truncation", "max_length", "sanitize_control_tokens", "return_tensors", "return_dict", "return_assistant_tokens_mask"),
    "tokenizer_kwargs",
}
"""Arguments of transformers that are not variables of a template, or whose values rlcore sets."""
_PROBES = ((Message(role="user", content=PROBE),), (Message(role="system", content="s"), Message(role="user", content=PROBE)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateSettings:
    """The user's settings of a chat template.

    ``variables``: values of variables of the template. ``tools``: schemas of the run's tools, for rows without tools of their own.
    ``plain_text``: control tokens in the text of a user or a tool are encoded as text.
    """

    variables: Mapping[str, Any] = field(default_factory=dict)
    tools: tuple[Mapping[str, Any], ...] = ()
    plain_text: bool = False

    def identity(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults, as plain values."""
        settings = {"variables": dict(self.variables), "tools": list(self.tools), "plain_text": self.plain_text}
        return {name: value for name, value in settings.items() if value}


class ChatTemplate:
    """Renders messages with the chat template of the Hugging Face tokenizer ``inner``."""

    def __init__(self, inner: Any, settings: TemplateSettings) -> None:
        self._inner, self.settings = inner, settings
        self._parts = False
        source = inner.chat_template
        self.source = "\n".join(map(str, source.values())) if isinstance(source, Mapping) else str(source)

    def check(self, path: str) -> None:
        """Choose the form of contents, which a probe message shows. Raises ConfigError if the text of a message would be lost, or for a
        variable that the template does not have."""
        for name in self.settings.variables:
            if name in _OWN:
                raise ConfigError(f"[data.template] {name}: rlcore gives this variable itself; leave it out")
            if not re.search(rf"(?<![\w'\"]){re.escape(name)}\b", self.source):
                words = sorted(set(re.findall(r"[A-Za-z_]\w+", self.source)))
                raise ConfigError(
                    f"[data.template] {name}: the chat template of {path} does not read {name}{closest(name, words)}; leave it out"
                )
        self._check_syntax(path)
        found = {parts: self._shows_text(parts) for parts in (False, True)}
        if not found[False] and False in found.values() and True not in found.values():
            raise ConfigError(
                f"the chat template of {path} leaves out the text of a user's message, so the model would train on nothing; name another "
                "one: --chat-template FILE.jinja"
            )
        self._parts = not found[False] and bool(found[True])

    def _check_syntax(self, path: str) -> None:
        from jinja2 import TemplateSyntaxError

        try:
            self._shows_text(False)
        except TemplateSyntaxError as error:
            said = (error.message or "").rstrip(".")
            raise ConfigError(f"the chat template of {path} is not valid Jinja (line {error.lineno}: {said}); correct it") from error

    def _shows_text(self, parts: bool) -> bool | None:
        """Return whether the text of a message is in the rendered chat; None if the template refuses the probes."""
        from jinja2 import TemplateError, TemplateSyntaxError

        for messages in _PROBES:
            try:
                turns = [_turn(message, parts=parts) for message in messages]
                return PROBE in self._apply(turns, self.settings.tools)
            except TemplateSyntaxError:
                raise
            except (TemplateError, TypeError, AttributeError, KeyError, IndexError):
                continue
        return None

    def text(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), *, prompt: bool = True) -> str:
        """Return the chat as text, with the generation prompt if ``prompt``."""
        shown = tools or self.settings.tools
        try:
            return self._apply([_turn(message, parts=self._parts) for message in messages], shown, prompt=prompt)
        except TypeError:
            if not any(message.tool_calls for message in messages):
                raise
            turns = [_turn(message, parts=self._parts, text_arguments=True) for message in messages]
            return self._apply(turns, shown, prompt=prompt)  # this template joins arguments to text

    def check_tools(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> None:
        """Raise DataError if the template leaves out a tool, a call or the result of a tool."""
        results = [message for message in messages if message.role == "tool"]
        calls = [call["function"]["name"] for message in messages for call in message.tool_calls]
        schemas = [tool.get("function", tool)["name"] for tool in tools or self.settings.tools]
        if not (results or calls or schemas):
            return
        text = self.text(messages, tools)
        bare = [replace(message, tool_calls=()) for message in messages]
        if schemas and self._apply([_turn(message, parts=self._parts) for message in messages], ()) == text:
            raise _left_out(f"tool {schemas[0]!r}")
        if calls and self.text(bare, tools) == text:
            raise _left_out(f"call of the tool {calls[0]!r}")
        words = [found[0] for message in results if (found := re.search(r"\w+", message.content, re.ASCII))]
        for what, names in (("tool", schemas), ("call of the tool", calls), ("result of a tool, which begins with", words)):
            if lost := next((name for name in names if name not in text), ""):
                raise _left_out(f"{what} {lost!r}")

    def _apply(self, turns: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]], *, prompt: bool = True) -> str:
        given = {"tools": [dict(tool) for tool in tools]} if tools else {}
        settings = {**given, **self.settings.variables}
        return str(self._inner.apply_chat_template(turns, add_generation_prompt=prompt, tokenize=False, **settings))


def _left_out(what: str) -> DataError:
    return DataError(
        f"the chat template leaves out the {what}; use a template that renders tools (--chat-template FILE.jinja), or leave them out of "
        "the data"
    )


def _turn(message: Message, *, parts: bool, text_arguments: bool = False) -> dict[str, Any]:
    """Return a message as the template reads it. ``text_arguments``: arguments of calls are JSON texts."""
    turn = message.plain()
    if parts:
        turn["content"] = [{"type": "text", "text": message.content}]
    if text_arguments and message.tool_calls:
        turn["tool_calls"] = [{**call, "function": _with_text(call["function"])} for call in message.tool_calls]
    return turn


def _with_text(function: Mapping[str, Any]) -> dict[str, Any]:
    arguments = function["arguments"]
    return {**function, "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)}


def read_template(path: str) -> str:
    """Return the chat template in a file. Raises ConfigError if it cannot be read."""
    text = _read(path, "chat template", "--chat-template and a Jinja file")
    if not text.strip():
        raise ConfigError(f"the chat template {path} is empty; type --chat-template and a Jinja file")
    return text


def read_tools(path: str) -> tuple[Mapping[str, Any], ...]:
    """Return the schemas of tools in a JSON file. Raises ConfigError if it has another form."""
    text = _read(path, "file of tools", "--tools and a JSON file")
    try:
        tools = tools_of(json.loads(text))
    except ValueError as error:
        raise ConfigError(
            f"{path} is not a JSON list of tools ({error}); write the schema of each tool, as transformers reads it"
        ) from None
    if not tools:
        raise ConfigError(f"{path} has no tool; leave out --tools, or write the schema of each tool")
    return tools


def _read(path: str, what: str, advice: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"the {what} {path} cannot be read: {reason}; type {advice}") from None
