"""Messages behind an answer, over real tokenizers and the kinds of chat templates that models have: the tokens are those of a chat."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rlcore.api import Completion, DataError, FinishReason, Message, Prompt, Sampling
from rlcore.api.conversations import Transcript
from rlcore.data.tokenizer import ChatTokenizer

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


def made(template: str) -> ChatTokenizer:
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
    return ChatTokenizer(wrapped)


def after(tokenizer: ChatTokenizer, answer: list[int], *messages: Message) -> tuple[list[int], list[int]]:
    """The prompt's tokens, and what stands behind the answer."""
    prompt = Prompt(prompt_id="p", index=0, messages=(Message(role="system", content="guess"), Message(role="user", content="a number")))
    context = tokenizer.render(prompt.messages)
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
