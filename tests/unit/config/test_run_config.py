"""The typed configuration: keys and defaults, strictness, and what a type expects in words."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from rlcore.config import RunConfig
from rlcore.config.setting_table import arity, core_settings, expected, from_text, model_settings


def test_defaults_are_valid() -> None:
    config = RunConfig()
    assert RunConfig.model_validate(config.model_dump()) == config


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("training", {"train_batch_size": "4"}),
        ("training", {"train_batch_size": 4.0}),
        ("training", {"train_batch_size": True}),
        ("training", {"learning_rate": float("inf")}),
        ("training", {"betas": [0.9]}),
        ("training", {"betas": [0.9, 1.0]}),
        ("training", {"zero_stage": 4}),
        ("sampling", {"top_p": 0.0}),
        ("sampling", {"temperature": 0}),
        ("sampling", {"temperature_end": 0}),
        ("run", {"seed": -1}),
        ("run", {"nothing": 1}),
        ("eval", {"eval_dataset": {"a": 3}}),
        ("data", {"shuffle": "yes"}),
    ],
)
def test_what_does_not_fit_is_refused(section: str, values: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RunConfig.model_validate({section: values})


def test_a_whole_number_is_fine_where_a_float_is_meant() -> None:
    assert RunConfig.model_validate({"training": {"max_grad_norm": 2}}).training.max_grad_norm == 2.0


def test_it_is_frozen() -> None:
    with pytest.raises(ValidationError):
        RunConfig().run.seed = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("dataset", "sources"),
    [
        ("", []),
        ("a.jsonl", [("a.jsonl", 1.0)]),
        (["a.jsonl", {"path": "b.jsonl", "ratio": 2}], [("a.jsonl", 1.0), ("b.jsonl", 2.0)]),
    ],
)
def test_sources_of_the_data(dataset: object, sources: list[tuple[str, float]]) -> None:
    config = RunConfig.model_validate({"data": {"dataset": dataset}})
    assert [(source.path, source.repeat) for source in config.data.sources] == sources


@pytest.mark.parametrize(("trainers", "tensor", "pipeline", "ranks"), [(1, 1, 1, 1), (4, 1, 1, 4), (16, 4, 2, 2), (8, 2, 1, 4)])
def test_data_parallel_ranks(trainers: int, tensor: int, pipeline: int, ranks: int) -> None:
    section = {"num_trainers": trainers, "tensor_parallel_size": tensor, "pipeline_parallel_size": pipeline}
    assert RunConfig.model_validate({"training": section}).training.data_parallel_size == ranks


def test_every_setting_has_a_line_of_help() -> None:
    assert [path for path, setting in core_settings().items() if not setting.help] == []


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (int, "a whole number"),
        (Annotated[int, Field(ge=1)], "a whole number of at least 1"),
        (Annotated[int, Field(ge=0, le=3)], "a whole number from 0 to 3"),
        (Annotated[float, Field(gt=0, le=1)], "a finite number above 0 and of at most 1"),
        (Annotated[int, Field(ge=1)] | Literal["auto"], "a whole number of at least 1, or auto"),
        (bool, "true or false"),
        (Literal["k1", "k2", "k3"], "k1, k2 or k3"),
        (tuple[float, float] | None, "a pair, each a finite number, or none"),
        (list[str], "a list, each item a text"),
        (dict[str, int], "a table (JSON on the command line), each value a whole number"),
    ],
)
def test_a_type_in_words(annotation: object, words: str) -> None:
    assert expected(annotation) == words


@pytest.mark.parametrize(
    ("words", "annotation", "value"),
    [
        (["4"], int, 4),
        (["4.5"], int, "4.5"),
        (["four"], int, "four"),
        (["1e-3"], float, 1e-3),
        (["auto"], Annotated[int, Field(ge=1)] | Literal["auto"], "auto"),
        (["3"], Annotated[int, Field(ge=1)] | Literal["auto"], 3),
        (["none"], int | None, None),
        (["none"], str, "none"),
        (["yes"], bool, True),
        (["maybe"], bool, "maybe"),
        (["a", "b"], list[str], ["a", "b"]),
        (["0.1", "1"], tuple[float, float], [0.1, 1.0]),
        (["none"], tuple[float, float] | None, None),
        (['{"a": 1}'], dict[str, int], {"a": 1}),
        (["{a"], dict[str, int], "{a"),
        (["a"], str | list[str], "a"),
        (["a", "b"], str | list[str], ["a", "b"]),
    ],
)
def test_a_flag_s_words_as_a_value(words: list[str], annotation: object, value: object) -> None:
    found = from_text(words, annotation)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("annotation", "count"), [(int, 1), (bool, "bool"), (tuple[float, float] | None, 2), (list[int], "many"), (str, 1)]
)
def test_how_many_words(annotation: object, count: object) -> None:
    assert arity(annotation) == count


def test_settings_of_a_plugin_s_model() -> None:
    class Options(BaseModel):
        clip_eps: float = Field(0.2, gt=0, description="how far")

    (setting,) = model_settings(Options, "algorithm.options", "acme").values()
    assert setting.path == "algorithm.options.clip_eps"
    assert setting.flags == ("--clip-eps",)
    assert set(setting.spellings) == {"--clip-eps", "--clip_eps", "--algorithm.options.clip-eps", "--algorithm.options.clip_eps"}
    assert expected(setting.type) == "a finite number above 0"
    assert (setting.default, setting.help, setting.owner) == (0.2, "how far", "acme")
