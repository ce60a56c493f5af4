"""What the requests of all dialects have in common: which fields count, are ignored, or are refused, and how texts and tools are read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rlcore_gateway.refusal import Refusal

__all__ = ["NEUTRAL", "function_tool", "ignored_fields", "parsed_arguments", "refused_field", "text_of", "tool_call", "validated"]

_BodyT = TypeVar("_BodyT", bound=BaseModel)
_HARMLESS = frozenset(
    {
        *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
        *("prompt_cache_options", "return_tokens_as_token_ids", "include_usage", "caching", "cache_control", "cache_salt", "priority"),
        *("request_id", "diagnostics", "inference_geo", "speed", "user_profile_id", "workspace_id", "access_programs", "max_tool_calls"),
        *("stream_options", "detokenize", "background_options", "image", "billing_policy", "betas", "fallbacks", "fallback_credit_token"),
    }
)
"""Fields that change nothing about the answer."""
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logit_bias": ({},),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "top_logprobs": (0,),
    "parallel_tool_calls": (True,),
    "modalities": (["text"],),
    "use_beam_search": (False,),
    "min_tokens": (0,),
    "ignore_eos": (False,),
    "include_stop_str_in_output": (False,),
    "background": (False,),
    **dict.fromkeys(("echo", "continue_final_message"), (False,)),
    **dict.fromkeys(("add_generation_prompt", "skip_special_tokens"), (True,)),
    **dict.fromkeys(("stop_token_ids", "bad_words", "functions", "mcp_servers"), ([],)),
    **dict.fromkeys(("chat_template_kwargs",), ({},)),
    **dict.fromkeys(
        (
            *("function_call", "audio", "prediction", "web_search_options", "chat_template", "documents", "logits_processors"),
            *("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "prompt_logprobs"),
            *("allowed_token_ids", "truncate_prompt_tokens", "thinking_token_budget", "conversation", "prompt", "container"),
            *("moderation", "compaction", "output_format", "features", "content_parts", "kv_transfer_params", "ec_transfer_params"),
        ),
        (),
    ),
}
"""The values of fields that leave the distribution of the policy as it is. null is always one of them."""
_NOT_OFFERED = frozenset(
    {"audio", "background", "container", "conversation", "kv_transfer_params", "mcp_servers", "prompt", "web_search_options"}
)
"""Fields of ``NEUTRAL`` that ask for a service, and not for another distribution."""
_TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "summary_text": "text", "refusal": "refusal"}
"""Types of text, and the field of each that has it."""


def validated(model: type[_BodyT], data: bytes, api: str) -> _BodyT:
    """Return the body of a request. Raises Refusal if it is not one."""
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise Refusal(f"{place or 'the body'}: {first['msg']}; send a request of {api}", param=place or None) from None


def ignored_fields(fields: Mapping[str, Any], neutral: Mapping[str, tuple[Any, ...]]) -> list[str]:
    """Return the names of fields that have no effect. Raises Refusal for one that would change the distribution.

    :param neutral: see ``NEUTRAL``.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    for name, value in given.items():
        if name in neutral and value not in neutral[name]:
            raise refused_field(name, value, neutral[name])
    return [name for name in given if name not in neutral and name not in _HARMLESS]


def refused_field(name: str, value: Any, neutral: Sequence[Any] = ()) -> Refusal:
    """Return the refusal of a field that would change the distribution, or asks for what is not offered."""
    advice = f", or send {' or '.join(json.dumps(one) for one in neutral)}" if neutral else ""
    text = json.dumps(value, ensure_ascii=False)
    harm = "would change the distribution that is trained, so the gateway refuses it"
    why = "is not offered by the gateway" if name in _NOT_OFFERED else harm
    return Refusal(
        f"{name} = {text if len(text) <= 60 else f'{text[:57]}...'} {why}; leave {name} out{advice}",
        code="unsupported_parameter",
        param=name,
    )


def text_of(content: Any, place: str) -> str:
    """Return a text that may be given in parts. Raises Refusal for a part that is not text."""
    if content is None or isinstance(content, str):
        return content or ""
    found = []
    for part in content if isinstance(content, list) else [content]:
        kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
        text = part.get(_TEXTS[kind]) if isinstance(part, Mapping) and isinstance(kind, str) and kind in _TEXTS else None
        if not isinstance(text, str):
            raise Refusal(f"{place}: content of type {kind!r:.60} is not text; the policy reads text only", param=place)
        found.append(text)
    return "".join(found)


def function_tool(fields: Mapping[str, Any], place: str, parameters: str = "parameters") -> Mapping[str, Any]:
    """Return a tool in the form of Chat Completions, so that it is the same in all dialects.

    :param parameters: the name of the field with the schema.
    """
    name = fields.get("name")
    if not isinstance(name, str) or not name:
        raise Refusal(f"{place} is not a function with a name; built-in tools are not offered", param=place)
    known = {"name": name, "description": fields.get("description"), "parameters": fields.get(parameters)}
    return {"type": "function", "function": {key: value for key, value in known.items() if value is not None}}


def tool_call(call: Any, name: Any, arguments: Any, place: str) -> Mapping[str, Any]:
    """Return a call of a tool in an earlier answer."""
    if not isinstance(name, str):
        raise Refusal(f"{place}: a tool call is not one of a function", param=place)
    named = call if isinstance(call, str) else ""
    return {"id": named, "type": "function", "function": {"name": name, "arguments": parsed_arguments(arguments)}}


def parsed_arguments(text: Any) -> Any:
    """Return the arguments of a call as an object; the text itself, if it is not the JSON text of an object."""
    if not isinstance(text, str):
        return {} if text is None else text
    try:
        value = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, Mapping | Sequence) and not isinstance(value, str) else text
