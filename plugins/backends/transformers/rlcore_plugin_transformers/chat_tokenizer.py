"""The tokenizer of a Hugging Face model, with rlcore's interface. transformers is imported on first use, not with this module."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rlcore.api import ConfigError, DataError, Message, Prompt
from rlcore.api.data import ChatTokenizer, DataSection
from rlcore_plugin_transformers.chat_template import ChatTemplate, TemplateSettings, read_template, read_tools
from rlcore_plugin_transformers.control_tokens import PlainTextEncoder, end_of_turn, hidden_tokens

__all__ = ["HuggingFaceTokenizer"]


def _loaded(path: str, trust_remote_code: bool) -> Any:
    try:
        from transformers import AutoTokenizer
        from transformers.utils import logging
    except ImportError as error:
        raise ConfigError(f"tokenizer {path!r} needs transformers, which is not installed; type: pip install transformers") from error
    if "TRANSFORMERS_VERBOSITY" not in os.environ:
        logging.set_verbosity_error()  # its warnings name its own functions, which the user of a run never calls
    try:
        inner = AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
        if not trust_remote_code and "trust_remote_code" in str(error):
            raise ConfigError(
                f"tokenizer {path!r}, or the model in its folder, comes with its own code (auto_map), which rlcore does not run without "
                "permission; read the code and type --trust-remote-code, or name another folder"
            ) from error
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"tokenizer {path!r} cannot be loaded: {reason.rstrip('.')}; point --model or --tokenizer-path at one") from error
    return inner


class HuggingFaceTokenizer(ChatTokenizer):
    """Wraps a Hugging Face tokenizer with a chat template.

    ``stop_ids`` holds the tokenizer's end-of-sequence token and the given ones, which the model's own files name. ``rows`` is the size of
    the model's vocabulary, None if it is not known.
    """

    def __init__(
        self, inner: Any, *, stop_ids: frozenset[int] = frozenset(), rows: int | None = None, settings: TemplateSettings | None = None
    ) -> None:
        self._inner = inner
        self.rows = rows
        self._hidden = hidden_tokens(inner)
        self._asked_ids: frozenset[int] = frozenset()
        """Stop tokens that a setting added; a resumed run may change it."""
        self.template = ChatTemplate(inner, settings or TemplateSettings())
        self._plain = PlainTextEncoder(inner, self.template) if self.template.settings.plain_text else None
        own = frozenset() if inner.eos_token_id is None else frozenset({int(inner.eos_token_id)})
        self.stop_ids = stop_ids | own

    @classmethod
    def load(cls, path: str, *, model: str | None, trust_remote_code: bool, data: DataSection) -> HuggingFaceTokenizer:
        """Load the tokenizer from a folder or by hub name. Raises ConfigError if there is none or it has no chat template."""
        inner = _loaded(path, trust_remote_code)
        if data.chat_template is not None:
            inner.chat_template = read_template(data.chat_template)
        if not inner.chat_template:
            raise ConfigError(
                f"tokenizer {path!r} has no chat template, so a prompt cannot be rendered; use an instruction-tuned model, --chat-template "
                "FILE.jinja, or --tokenizer-path with a copy whose tokenizer_config.json has chat_template"
            )
        stop_ids = _stop_ids(path) | (_stop_ids(model) if model and model != path else frozenset())
        tools = read_tools(data.tools) if data.tools is not None else ()
        settings = TemplateSettings(variables=data.template, tools=tools, plain_text=data.control_tokens == "text")
        made = cls(inner, stop_ids=stop_ids, rows=_rows(model or path), settings=settings)
        made.template.check(data.chat_template or repr(path))
        if made.rows is not None and made.stop_ids and min(made.stop_ids) >= made.rows:
            raise ConfigError(
                f"the model has {made.rows} rows in its vocabulary and can never generate token {min(made.stop_ids)} "
                f"({inner.eos_token!r}), with which tokenizer {path!r} ends a response; use the tokenizer that belongs to the model"
            )
        return made

    def render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> np.ndarray:
        """Return int32[C]: the chat template applied, with the generation prompt. Without ``tools``, it renders those of the run.

        Raises DataError if the template refuses the messages or leaves out something about tools, and ConfigError if the model has no row
        for a token."""
        if self._plain and self._plain.needed(messages):
            with _refusals(messages):
                self.template.check_tools(messages, tools)
                ids = self._plain.ids(messages, tools)
        else:
            ids = self._ids_of([self._text(messages, tools)])[0]
        self._check(ids)
        return np.asarray(ids, dtype=np.int32)

    def lengths(self, prompts: Sequence[Prompt]) -> list[int]:
        """Return the number of tokens of each prompt as ``render`` gives it. Many prompts together take a fraction of the time.

        Raises what ``render`` raises, for one of the prompts."""
        alone = {place for place, prompt in enumerate(prompts) if self._plain and self._plain.needed(prompt.messages)}
        texts = [self._text(prompt.messages, prompt.tools) for place, prompt in enumerate(prompts) if place not in alone]
        together = iter(self._ids_of(texts) if texts else [])
        lengths = []
        for place, prompt in enumerate(prompts):
            if place in alone:
                lengths.append(len(self.render(prompt.messages, prompt.tools)))
            else:
                self._check(ids := next(together))
                lengths.append(len(ids))
        return lengths

    def _text(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
        with _refusals(messages):
            self.template.check_tools(messages, tools)
            return self.template.text(messages, tools)

    def _ids_of(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of rendered chats, which already have their control tokens."""
        only_ids = {"return_attention_mask": False, "return_token_type_ids": False}
        return list(self._inner(list(texts), add_special_tokens=False, padding=False, truncation=False, **only_ids)["input_ids"])

    def _check(self, ids: Sequence[int]) -> None:
        if not len(ids):
            raise DataError("the chat template renders no tokens at all; fix the tokenizer's chat_template")
        self._check_rows(ids)

    def _check_rows(self, ids: Sequence[int]) -> None:
        if self.rows is not None and (beyond := max(ids, default=0)) >= self.rows:
            raise ConfigError(
                f"the prompt holds token {beyond} ({self._inner.convert_ids_to_tokens(beyond)!r}), and the model's vocabulary has "
                f"{self.rows} rows; use the tokenizer that belongs to the model (--tokenizer-path)"
            )

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text that is not a chat. Control tokens in it are plain text if ``data.control_tokens`` says so.

        Raises ConfigError if the model has no row for a token, or if this tokenizer has no plain text for a control token."""
        ids = self._plain.encode(text) if self._plain else self._ids_of([text])[0]
        self._check_rows(ids)
        return ids

    @property
    def end_ids(self) -> frozenset[int]:
        """The stop tokens that end a message. A stop token of ``--stop`` does so only if the chat template ends a message with it."""
        end = end_of_turn(self.template, self._inner) if self._asked_ids else None
        return self.stop_ids - (self._asked_ids - {self._hidden.get(end or "", -1)})

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the exact text without special tokens; spaces are not cleaned up."""
        return self.decode_all(token_ids, special=False)

    def decode_all(self, token_ids: Sequence[int], *, special: bool = True) -> str:
        """Return the exact text with special tokens: some models mark a tool call with one."""
        ids = [int(token) for token in token_ids]
        return str(self._inner.decode(ids, skip_special_tokens=not special, clean_up_tokenization_spaces=False))

    def stop_at(self, strings: Sequence[str]) -> None:
        """Let stop strings that are special tokens end a response: their tokens become stop tokens, because ``decode`` leaves them out.

        Raises ConfigError for a stop string that contains a special token and more."""
        for string in strings:
            if string in self._hidden:
                self._asked_ids |= {self._hidden[string]} - self.stop_ids
                self.stop_ids |= {self._hidden[string]}
        if found := self.unmatched(strings):
            string, token = found
            raise ConfigError(
                f"the stop string {string!r} would never match, because responses are decoded without special tokens such as {token}; "
                f"type --stop {shlex.quote(token)}"
            )

    def unmatched(self, strings: Sequence[str]) -> tuple[str, str] | None:
        """Return the first string that no decoded text holds, with the special token in it. Texts of stop tokens do not count."""
        for string in strings:
            token = next((text for text in self._hidden if text in string), "")
            if token and not (string in self._hidden and self._hidden[string] in self.stop_ids):
                return string, token
        return None

    def remarks(self) -> list[str]:
        """Return sentences about the chat template that the user should read."""
        end = end_of_turn(self.template, self._inner)
        if end is None or self._inner.convert_tokens_to_ids(end) in self.stop_ids:
            return []
        stops = ", ".join(map(str, self._inner.convert_ids_to_tokens(sorted(self.stop_ids)))) or "none"
        return [
            f"the chat template ends a turn with {end}, which is not a stop token of the model ({stops}), so a response continues "
            f"after it; type --stop {shlex.quote(end)}"
        ]

    def fingerprint(self) -> str:
        """Return the SHA-256 of vocabulary, merges, special tokens, text rules (normaliser, pre-tokenizer, decoder), template with its
        settings, and stop tokens."""
        inner = self._inner
        identity = {
            "vocabulary": inner.get_vocab(),
            "special": {name: str(token) for name, token in inner.special_tokens_map.items()},
            "special_ids": sorted(int(token) for token in inner.all_special_ids),
            "template": inner.chat_template,
            "stop_ids": sorted(self.stop_ids - self._asked_ids),
            **self.template.settings.identity(),
            **_rules(inner),
        }
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

    def save(self, folder: Path) -> None:
        """Write it next to a model. ``load`` reads it back with the model's configuration, which names further stop tokens."""
        self._inner.save_pretrained(str(folder))


@contextmanager
def _refusals(messages: Sequence[Message]) -> Iterator[None]:
    """A context that turns a refusal of the template into a DataError."""
    from jinja2 import TemplateError

    try:
        yield
    except TemplateError as error:
        roles = ", ".join(message.role for message in messages)
        raise DataError(
            f"the chat template refuses messages with roles {roles}: {error}; change the messages or --system-prompt"
        ) from error


def _rules(inner: Any) -> dict[str, Any]:
    """Return the rules of a fast tokenizer apart from its vocabulary. The rules of a slow one are its class.

    Padding and truncation are left out, because they are settings of the last call."""
    backend = getattr(inner, "backend_tokenizer", None)
    if backend is None:
        return {"class": type(inner).__name__}
    state = json.loads(backend.to_str())
    rules = {name: state.get(name) for name in ("normalizer", "pre_tokenizer", "decoder", "post_processor")}
    return {**rules, "kind": state["model"].get("type"), "merges": state["model"].get("merges")}


def _stop_ids(path: str) -> frozenset[int]:
    """Return the end-of-sequence tokens in the model's ``generation_config.json`` and ``config.json``, if these exist."""
    found: set[int] = set()
    for name in ("generation_config.json", "config.json"):
        value = _settings_in(path, name).get("eos_token_id")
        values = value if isinstance(value, list) else [value]
        found |= {int(token) for token in values if token is not None}
    return frozenset(found)


def _rows(path: str) -> int | None:
    """Return the vocabulary size in the ``config.json`` of a model's folder; None if it is not given."""
    config = _settings_in(path, "config.json")
    tables = [table for table in (config, config.get("text_config")) if isinstance(table, Mapping)]
    return next((size for table in tables if isinstance(size := table.get("vocab_size"), int)), None)


def _settings_in(path: str, name: str) -> Mapping[str, Any]:
    """Return a JSON file of the model, or an empty mapping if it has none."""
    from transformers.utils import cached_file

    file = cached_file(
        path,
        name,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    try:
        content = json.loads(Path(file).read_text(encoding="utf-8")) if file is not None else {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read as JSON: {error}; download or save the model again") from error
    return content if isinstance(content, Mapping) else {}
