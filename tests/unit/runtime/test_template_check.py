"""What a dry run checks of the chat template: only settings that somebody typed, on a tokenizer that is on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcore.contracts.errors import ConfigError
from rlcore.runtime import loading
from tests.unit.runtime.test_known_data import Bench


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"data.template": {"nope": 1}}, "does not read nope"),
        ({"data.chat_template": "lost.jinja"}, "leaves out the text of a user's message"),
        ({"data.chat_template": "broken.jinja"}, "is not valid Jinja"),
        ({"sampling.stop": ["<eos> x"]}, "would never match"),
    ],
)
def test_a_setting_that_does_not_fit_is_refused(
    made: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: dict[str, object], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lost.jinja").write_text("{% for m in messages %}<user>{% endfor %}")
    Path("broken.jinja").write_text("{% for m in messages %}")
    with pytest.raises(ConfigError, match=said):
        loading.check_template(made.plan(**flags))


def test_nothing_is_loaded_for_the_usual_settings(made: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(loading, "_tokenizer")
    loading.check_template(made.plan())
