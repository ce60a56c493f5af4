"""The saved folder gives everybody the same tokens, spaces included."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_plugin_quickstart.arithmetic import TOOLS, Calculation
from rlcore_plugin_quickstart.digits_tokenizer import CHARACTERS, VOCABULARY, build_tokenizer, check_round_trip
from rlcore_plugin_quickstart.task import Problem
from rlcore_plugin_quickstart.warmstart import encode, new_model, save_model
from transformers import AutoTokenizer

from rlcore.api import Message, RunError
from rlcore.testing import ChatTokenizer


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    save_model(new_model(0), folder)
    build_tokenizer().save_pretrained(folder)
    return folder


def test_it_has_88_tokens(base: Path) -> None:
    loaded = AutoTokenizer.from_pretrained(base)
    assert len(VOCABULARY) == len(set(VOCABULARY)) == len(loaded) == 88
    assert loaded.get_vocab() == {token: index for index, token in enumerate(VOCABULARY)}


def test_a_chat_beside_a_qwen2_configuration(base: Path) -> None:
    loaded = AutoTokenizer.from_pretrained(base)
    chat = [{"role": "user", "content": "sort 8 3 1 6"}]
    text = loaded.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert text == "<|user|>sort 8 3 1 6<|end|><|assistant|>"
    ids = loaded.encode(text + Problem((8, 3, 1, 6)).response, add_special_tokens=False)
    tokens = ["<|user|>", "sort", *"Ġ8Ġ3Ġ1Ġ6", "<|end|>", "<|assistant|>", r"\boxed{", *"1Ġ3Ġ6Ġ8", "}"]
    assert loaded.convert_ids_to_tokens(ids) == tokens
    assert loaded.decode(ids, skip_special_tokens=True) == r"sort 8 3 1 6\boxed{1 3 6 8}"
    assert (loaded.eos_token, loaded.pad_token) == ("<|end|>", "<|pad|>")


def test_a_chat_with_a_call_has_few_tokens_and_leaves_nothing_out(tmp_path: Path) -> None:
    built = build_tokenizer(tools=True)
    built.save_pretrained(tmp_path)
    check_round_trip(tmp_path, tools=True)
    assert build_tokenizer().encode("sort 8") == built.encode("sort 8")
    data = encode([Calculation("what is", 47, "*", 36).solution], built, TOOLS)
    said = [token for token, is_answer in zip(data.ids[0].tolist(), data.answer[0].tolist(), strict=True) if is_answer]
    call = '<tool_call>{"name": "calculator", "arguments": {"expression": "47*36"}}</tool_call>'
    assert built.decode(said, skip_special_tokens=True) == f"{call}1692"
    assert (len(said), data.ids.shape[1]) == (13, 33)
    user = [Message(role="user", content="what is 47*36")]
    calls = ({"type": "function", "function": {"name": "calculator", "arguments": {"expression": "47*36"}}},)
    chat = [*user, Message(role="assistant", content="", tool_calls=calls), Message(role="tool", content="1692")]
    rendered = ChatTokenizer(AutoTokenizer.from_pretrained(tmp_path)).render(
        chat, TOOLS
    )  # it refuses a template that leaves out a tool, a call or a result
    assert rendered.tolist() == data.ids[0, : len(rendered)].tolist()


def test_the_round_trip_is_checked(base: Path, tmp_path: Path) -> None:
    check_round_trip(base)
    for path in base.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    wrong = (tmp_path / "tokenizer.json").read_text(encoding="utf-8").replace("Ġ", "_")
    (tmp_path / "tokenizer.json").write_text(wrong, encoding="utf-8")
    with pytest.raises(RunError, match="is not the one that AutoTokenizer reads back"):
        check_round_trip(tmp_path)


@settings(deadline=None, max_examples=100)
@given(st.text(alphabet=CHARACTERS, max_size=40))
def test_every_text_of_its_characters_comes_back(text: str) -> None:
    tokenizer = _built()
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def _built(cache: list[object] = []) -> object:  # noqa: B006 - built once for all examples
    return cache[0] if cache else cache.append(build_tokenizer()) or cache[0]
