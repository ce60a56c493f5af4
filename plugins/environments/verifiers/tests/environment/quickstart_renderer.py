"""A renderer of the quickstart's model with a tool, in whose vocabulary `<tool_call>` is a part of a longer token."""

import json
import re
from importlib import import_module

ParsedToolCall = import_module("renderers.base").ParsedToolCall  # a package that verifiers brings, which this repository does not declare
DefaultRendererConfig = import_module("renderers.configs").DefaultRendererConfig
DefaultRenderer = import_module("renderers.default").DefaultRenderer

__all__ = ["QuickstartRenderer"]


class CallInText:
    """Finds a call in the text of an answer. The parsers of the package look for the token `<tool_call>`."""

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer

    def extract(self, ids):
        found = re.fullmatch(r"<tool_call>(.*)</tool_call>", self._tokenizer.decode(ids))
        if not found:
            return ids, []
        try:
            call = json.loads(found[1])
        except ValueError:
            return ids, []
        return [], [ParsedToolCall(raw=found[1], name=call["name"], arguments=call["arguments"], token_span=(0, len(ids)))]


class QuickstartRenderer(DefaultRenderer):
    config_class = DefaultRendererConfig

    def __init__(self, tokenizer, config):
        super().__init__(tokenizer, config)
        self._tool_parser = CallInText(tokenizer)
