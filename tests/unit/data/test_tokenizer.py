"""The chat tokenizer over real Hugging Face tokenizers made on the spot."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from rlcore.api import ConfigError, DataError, Message
from rlcore.testing import ChatTokenizer
from rlcore.testing.core_parts import load_tokenizer

WORDS = ["<pad>", "<eos>", "<user>", "<assistant>", "sort", "1", "2", "3", " ", ",", ".", "?", "é"]
TEMPLATE = (
    "{% for m in messages %}{% if m['role'] == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}"
    "<user>{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def made(template=TEMPLATE, words=WORDS):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    fast = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<pad>"))
    fast.pre_tokenizer = pre_tokenizers.Split(Regex("sort|."), behavior="isolated")
    fast.decoder = decoders.Fuse()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="<eos>", pad_token="<pad>")
    wrapped.add_special_tokens({"additional_special_tokens": ["<user>", "<assistant>"]})
    wrapped.chat_template = template
    return wrapped


def saved(folder, inner=None, **files) -> str:
    (inner or made()).save_pretrained(folder)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return str(folder)


def test_a_tokenizer_without_the_plugin_that_reads_it_says_why(monkeypatch):
    monkeypatch.setenv("RLCORE_DISABLE", "transformers")
    with pytest.raises(ConfigError, match="tokenizer 'a/b' needs rlcore-plugin-transformers, which RLCORE_DISABLE excludes; change that"):
        load_tokenizer("a/b")


def test_renders_the_template_with_the_generation_prompt_as_int32():
    ids = ChatTokenizer(made()).render([Message(role="user", content="sort 3 1")])
    assert ids.dtype == np.int32
    np.testing.assert_array_equal(ids, [2, 4, 8, 7, 8, 5, 3])


def test_decodes_without_special_tokens_and_keeps_every_space():
    tokenizer = ChatTokenizer(made())
    assert tokenizer.decode(np.array([3, 5, 8, 9, 8, 10, 8, 11, 12, 1, 0])) == "1 , . ?é"
    assert tokenizer.decode([]) == ""


def test_a_refusal_of_the_template_names_the_roles():
    with pytest.raises(DataError, match="roles user, tool: no tools here"):
        ChatTokenizer(made()).render([Message(role="user", content="1"), Message(role="tool", content="2")])


def test_a_template_that_renders_nothing_is_an_error():
    with pytest.raises(DataError, match="no tokens at all"):
        ChatTokenizer(made("{{ '' }}")).render([Message(role="user", content="1")])


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, {1}),
        ({"generation_config": {"eos_token_id": [5, 6]}}, {1, 5, 6}),
        ({"config": {"eos_token_id": 7, "model_type": "qwen2"}}, {1, 7}),
        ({"config": {"eos_token_id": None, "model_type": "qwen2"}, "generation_config": {"eos_token_id": 4}}, {1, 4}),
    ],
)
def test_stop_tokens_come_from_tokenizer_and_model(tmp_path, files, expected):
    assert load_tokenizer(saved(tmp_path, **files)).stop_ids == expected


def test_a_model_file_that_is_no_json_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"generation_config\.json cannot be read as JSON"):
        load_tokenizer(saved(tmp_path, generation_config="{"))


def test_no_chat_template_says_what_to_do(tmp_path):
    with pytest.raises(ConfigError, match=r"no chat template.*--tokenizer-path"):
        load_tokenizer(saved(tmp_path, made(template=None)))


def test_no_tokenizer_is_one_sentence():
    with pytest.raises(ConfigError, match="cannot be loaded") as caught:
        load_tokenizer("/no/such/folder/anywhere")
    assert "\n" not in str(caught.value)


def test_saved_and_loaded_it_is_the_same(tmp_path):
    first = load_tokenizer(saved(tmp_path / "a"))
    first.save(tmp_path / "b")
    second = load_tokenizer(str(tmp_path / "b"))
    assert first.fingerprint() == second.fingerprint()
    message = [Message(role="user", content="sort 3 1 , 2")]
    np.testing.assert_array_equal(first.render(message), second.render(message))


def test_the_fingerprint_does_not_depend_on_use():
    tokenizer = ChatTokenizer(made())
    before = tokenizer.fingerprint()
    tokenizer._inner(["1", "1 2 3"], padding=True, truncation=True, max_length=4)
    assert tokenizer.fingerprint() == before
    assert len(before) == 64


def test_the_fingerprint_sees_whatever_changes_the_meaning_of_a_token():
    from tokenizers import normalizers

    plain = ChatTokenizer(made()).fingerprint()
    lower = made()
    lower.backend_tokenizer.normalizer = normalizers.Lowercase()
    swapped = [*WORDS[:5], "2", "1", *WORDS[7:]]
    other_end = made()
    other_end.eos_token = "."
    changed = [
        ChatTokenizer(made(TEMPLATE + " ")),
        ChatTokenizer(made(words=swapped)),
        ChatTokenizer(lower),
        ChatTokenizer(other_end),
        ChatTokenizer(made(), stop_ids=frozenset({5})),
    ]
    assert len({plain, *(tokenizer.fingerprint() for tokenizer in changed)}) == 6


def test_importing_the_module_loads_no_transformers():
    heavy = ("torch", "transformers", "tokenizers")
    code = f"import sys, rlcore_plugin_transformers.chat_tokenizer; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
