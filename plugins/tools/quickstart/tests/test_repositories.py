"""The task ``repair``: its repositories, their bugs and tests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_plugin_quickstart.digits_tokenizer import build_tokenizer, check_round_trip
from rlcore_plugin_quickstart.patches import PatchError, applied
from rlcore_plugin_quickstart.recipe import TASKS
from rlcore_plugin_quickstart.repositories import ASKED, HABITS, WORDS, Repository, make_repositories
from rlcore_plugin_quickstart.warmstart import WarmStartSettings

REPOSITORIES = make_repositories(0, 400, 60)
SEEDS = st.integers(0, 2**32)


def value(files: dict[str, str], test: list[str]) -> str:
    names: dict[str, Any] = {}
    exec(files[f"{test[0]}.py"], names)  # our own generated code
    return repr(eval(test[1], names))


def drawn(seed: int) -> Repository:
    return make_repositories(seed, 1, 1).train[0]


@settings(deadline=None, max_examples=100)
@given(SEEDS)
def test_the_patch_repairs_the_repository(seed: int) -> None:
    repository = drawn(seed)
    row: dict[str, Any] = repository.row()
    after = applied(row["files"], repository.patch)
    assert after == repository.repaired
    for name in ("fail_to_pass", "pass_to_pass"):
        assert len(row[name]) == 3
        assert all(value(after, test) == test[2] for test in row[name])
        assert all((value(row["files"], test) == test[2]) == (name == "pass_to_pass") for test in row[name])


@settings(deadline=None, max_examples=100)
@given(SEEDS)
def test_the_shown_test_fails_as_the_prompt_says_and_is_not_hidden(seed: int) -> None:
    repository = drawn(seed)
    row: dict[str, Any] = repository.row()
    test = row["shown_test"]
    content = row["messages"]["content"]
    assert content.splitlines()[-1] == f"{test[1]} is {value(row['files'], test)}, not {test[2]}"
    assert test not in row["fail_to_pass"]
    assert all(f"{path}\n{text}" in content for path, text in row["files"].items())


@settings(deadline=None, max_examples=25)
@given(seed=SEEDS, n_train=st.integers(1, 300), n_heldout=st.integers(1, 100))
def test_no_held_out_set_of_functions_is_trained_on(seed: int, n_train: int, n_heldout: int) -> None:
    split = make_repositories(seed, n_train, n_heldout)
    assert split == make_repositories(seed, n_train, n_heldout)
    assert (len(split.train), len(split.heldout)) == (n_train, n_heldout)
    train, heldout = ({frozenset(function.name for _, function in one.right) for one in part} for part in (split.train, split.heldout))
    assert not train & heldout
    assert len({repository.question for repository in split.train}) == n_train
    for part in (split.train, split.heldout):
        assert sum(one.asked == "patch" for one in part) == -(-len(part) // len(ASKED))


def test_the_warm_start_reads_each_lesson_once_and_none_of_the_held_out_functions() -> None:
    task = TASKS["repair"]
    started = WarmStartSettings(**task.warm_start)
    assert task.n_lessons == started.steps * started.batch_size
    lessons, split = make_repositories(0, task.n_lessons, task.n_heldout), make_repositories(0, 100, task.n_heldout)
    assert lessons.heldout == split.heldout
    sets = ({frozenset(function.name for _, function in one.right) for one in part} for part in (lessons.train, split.heldout))
    assert not set.intersection(*sets)


def test_the_habits_of_the_warm_start_do_not_apply_except_the_patch() -> None:
    found = dict.fromkeys(HABITS, 0)
    for repository in REPOSITORIES.train:
        found[repository.habit] += 1
        answer = repository.lesson[1]["content"]
        if repository.habit == "patch":
            assert answer == repository.patch
        else:
            assert repository.asked == "fix"
            with pytest.raises(PatchError):
                applied(repository.files, answer)
    assert min(found.values()) > 2


def test_the_tokenizer_writes_them_in_few_tokens_and_gives_them_back(tmp_path: Any) -> None:
    tokenizer = build_tokenizer(words=WORDS)
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    check_round_trip(tmp_path, words=WORDS)
    for repository in REPOSITORIES.heldout:
        prompt = tokenizer.apply_chat_template(repository.solution[:1], add_generation_prompt=True, tokenize=False)
        assert len(tokenizer(prompt)["input_ids"]) <= 45
        ids = tokenizer(repository.patch)["input_ids"]
        assert len(ids) == 10
        assert tokenizer.decode(ids) == repository.patch
