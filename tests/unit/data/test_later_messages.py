"""Messages behind an answer, over real tokenizers and the kinds of chat templates that models have: the tokens are those of a chat."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rlcore_plugin_transformers.chat_template import TemplateSettings

from rlcore.api import Completion, DataError, FinishReason, Message, Prompt, Sampling
from rlcore.api.conversations import Transcript
from rlcore.contracts.conversation import rendered
from rlcore.contracts.errors import RunError
from rlcore.testing import ChatTokenizer

TEXT = "the number is higher or lower than 12345 a b 0 1, guess again. Yes No\n\nuser assistant system think" * 3
MARKS = ["<|im_start|>", "<|im_end|>", "<|eot|>", "<think>", "</think>"]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEMPLATES = {
    "chatml": CHATML,
    "answers are trimmed and must not be empty": (
        "{% for m in messages %}{% if not m['content'] %}{{ raise_exception('empty') }}{% endif %}"
        "<|im_start|>{{ m['role'] }}\n\n{{ m['content'] | trim }}<|im_end|>{% endfor %}<|im_start|>assistant\n\n"
    ),
    "the request for an answer begins a thought that later renderings leave out": (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'].split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
        "<|im_start|>assistant\n<think>\n"
    ),
    "no mark ends an answer": "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n\n{% endfor %}assistant:",
}


def made(template: str, settings: TemplateSettings | None = None) -> ChatTokenizer:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    fast = Tokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    fast.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False))
    wrapped: Any = PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="<|im_end|>")
    wrapped.add_special_tokens({"additional_special_tokens": MARKS})
    wrapped.chat_template = template
    return ChatTokenizer(wrapped, settings=settings)


def after(tokenizer: ChatTokenizer, answer: list[int], *messages: Message, **given: Any) -> tuple[list[int], list[int]]:
    """The prompt's tokens, and what stands behind the answer."""
    start = (Message(role="system", content="guess"), Message(role="user", content="a number"))
    prompt = Prompt(prompt_id="p", index=0, messages=start, **given)
    context = rendered(tokenizer, prompt)
    transcript = Transcript(prompt, context, Sampling(max_new_tokens=500), tokenizer)
    asked = transcript.ask()
    next(asked)
    values = np.zeros(len(answer))
    with pytest.raises(StopIteration):
        asked.send(Completion(request_id="r", token_ids=np.array(answer), logprobs=values, versions=values, finish=FinishReason.STOP))
    assert transcript.say(*messages)
    (segment,) = transcript.dialogue().segments
    assert segment.token_ids[: len(answer)].tolist() == answer
    return context.tolist(), segment.token_ids[len(answer) :].tolist()


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("content", ["higher", "  a b", "0", "b", ""])
def test_what_follows_an_answer_is_what_a_chat_has_there(template: str, content: str) -> None:
    tokenizer = made(template)
    inner = tokenizer._inner
    message = Message(role="user", content=content or "\n")
    _, following = after(tokenizer, inner.encode("Yes, 12"), message)
    chat = [{"role": role, "content": text} for role, text in (("user", "x"), ("assistant", "Yes, 12"), ("user", message.content))]
    text = inner.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert inner.decode(following) == text.split("Yes, 12")[1]


def test_the_stop_token_that_was_sampled_is_not_repeated_and_one_that_was_not_is_put_there() -> None:
    tokenizer = made(CHATML)
    end = tokenizer._inner.convert_tokens_to_ids("<|im_end|>")
    assert end in tokenizer.stop_ids
    answer = tokenizer._inner.encode("Yes")
    _, cut = after(tokenizer, answer, Message(role="user", content="higher"))
    _, whole = after(tokenizer, [*answer, end], Message(role="user", content="higher"))
    assert cut == [end, *whole]


def test_another_stop_token_stays_where_it_was_sampled() -> None:
    tokenizer = made(CHATML)
    other, end = (tokenizer._inner.convert_tokens_to_ids(mark) for mark in ("<|eot|>", "<|im_end|>"))
    tokenizer.stop_ids |= {other}
    _, following = after(tokenizer, [*tokenizer._inner.encode("Yes"), other], Message(role="user", content="higher"))
    assert following[0] == end


def test_several_messages_are_said_at_once() -> None:
    tokenizer = made(CHATML)
    _, following = after(tokenizer, tokenizer._inner.encode("Yes"), Message(role="tool", content="12"), Message(role="user", content="so?"))
    assert tokenizer._inner.decode(following) == (
        "<|im_end|>\n<|im_start|>tool\n12<|im_end|>\n<|im_start|>user\nso?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_template_that_refuses_the_message_says_so() -> None:
    tokenizer = made("{% if messages[-1]['role'] == 'tool' %}{{ raise_exception('no tools') }}{% endif %}" + CHATML)
    with pytest.raises(DataError, match=r"roles system, user, assistant, tool: no tools"):
        after(tokenizer, tokenizer._inner.encode("Yes"), Message(role="tool", content="12"))


def test_tools_and_variables_hold_in_later_turns() -> None:
    """The template reminds of the tools in every message of a user, and a variable ends the request for an answer."""
    names = "{{ tools | map(attribute='name') | join(',') if tools and m['role'] == 'user' }}"
    template = CHATML.replace("{{ m['content'] }}", "{{ m['content'] }}" + names)
    tokenizer = made(template + "{% if hush %}<think></think>{% endif %}", TemplateSettings(variables={"hush": True}))
    said = Message(role="user", content="higher")
    context, following = after(tokenizer, tokenizer._inner.encode("Yes"), said, tools=({"name": "abacus"},))
    inner = tokenizer._inner
    assert inner.decode(context).endswith("a numberabacus<|im_end|>\n<|im_start|>assistant\n<think></think>")
    assert inner.decode(following) == "<|im_end|>\n<|im_start|>user\nhigherabacus<|im_end|>\n<|im_start|>assistant\n<think></think>"


def test_a_mark_in_a_later_message_can_be_plain_text() -> None:
    tokenizer = made(CHATML, TemplateSettings(plain_text=True))
    end = tokenizer._inner.convert_tokens_to_ids("<|im_end|>")
    _, following = after(tokenizer, tokenizer._inner.encode("Yes"), Message(role="tool", content="12<|im_end|>"))
    assert following.count(end) == 2, "those of the template"
    assert tokenizer._inner.decode(following).count("<|im_end|>") == 3


@pytest.mark.parametrize(("stop", "refused"), [("<|eot|>", True), ("x<|im_end|>", True), ("<|im_end|>", False), ("\n", False)])
def test_a_stop_string_of_one_turn_that_can_never_match_ends_the_run(stop: str, refused: bool) -> None:
    tokenizer = made(CHATML)
    prompt = Prompt(prompt_id="p", index=0, messages=(Message(role="user", content="a"),))
    asked = Transcript(prompt, rendered(tokenizer, prompt), Sampling(max_new_tokens=9), tokenizer).ask(stop=(stop,))
    if refused:
        with pytest.raises(RunError, match="would never match"):
            next(asked)
    else:
        assert next(asked).sampling.stop == (stop,)


def inserted(tokenizer: ChatTokenizer, answer: list[int], text: str) -> list[int] | None:
    """The tokens of a text that is inserted behind an answer; None if it was refused."""
    prompt = Prompt(prompt_id="p", index=0, messages=(Message(role="user", content="a number"),))
    transcript = Transcript(prompt, rendered(tokenizer, prompt), Sampling(max_new_tokens=500), tokenizer)
    asked = transcript.ask()
    next(asked)
    values = np.zeros(len(answer))
    with pytest.raises(StopIteration):
        asked.send(Completion(request_id="r", token_ids=np.array(answer), logprobs=values, versions=values, finish=FinishReason.STOP))
    if not transcript.insert(text):
        return None
    (segment,) = transcript.dialogue().segments
    return [int(token) for token in segment.token_ids[~segment.policy_mask]]


def test_a_text_is_inserted_behind_a_stop_token_of_the_run_and_not_behind_the_end_of_the_message() -> None:
    tokenizer = made(CHATML)
    inner = tokenizer._inner
    call, end, end_too = inner.convert_tokens_to_ids(["</think>", "<|im_end|>", "<|eot|>"])
    tokenizer.stop_at(["</think>"])
    answer = inner.encode("Yes")
    assert {call, end} <= tokenizer.stop_ids
    assert inserted(tokenizer, [*answer, call], "higher") == inner.encode("higher")
    assert inserted(tokenizer, answer, "higher") == inner.encode("higher")
    assert inserted(tokenizer, [*answer, end], "higher") is None
    inner.eos_token = "<|eot|>"  # the model's files name another token, so the user names the template's: --stop '<|im_end|>'
    other = ChatTokenizer(inner)
    other.stop_at(["<|im_end|>"])
    assert other.stop_ids == {end, end_too}
    assert inserted(other, [*answer, end], "higher") is None


def test_control_tokens_of_an_inserted_text_are_text_if_the_data_says_so() -> None:
    end = made(CHATML)._inner.convert_tokens_to_ids("<|im_end|>")
    special = inserted(made(CHATML), [65], "12<|im_end|>")
    plain = inserted(made(CHATML, TemplateSettings(plain_text=True)), [65], "12<|im_end|>")
    assert special is not None
    assert plain is not None
    assert special[-1] == end
    assert end not in plain
    assert made(CHATML)._inner.decode(plain) == "12<|im_end|>"
    assert inserted(made(CHATML, TemplateSettings(plain_text=True)), [65], "12") == special[:-1]
