"""Options and rows of the environment ``nemo_gym``. The package nemo-gym is not needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from rlcore_plugin_nemo_gym.environment import NemoGym, _result
from rlcore_plugin_nemo_gym.options import NemoGymOptions

from rlcore.api import DataError, PluginKind
from rlcore.testing import Registry


def test_it_is_registered() -> None:
    assert Registry.discover().owner(PluginKind.ENVIRONMENT, "nemo_gym") == "rlcore-plugin-nemo-gym"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "name one server: address, or server = module:Class"),
        ({"address": "http://a:1", "server": "m:C"}, "name one server: address, or server = module:Class"),
        ({"address": "localhost:1"}, "'localhost:1' is not an address; write it with its protocol"),
        ({"server": "mcqa", "python": "/opt/gym"}, "'mcqa' is not a name of the form module:Class"),
        ({"server": "m:C"}, "environment nemo-gym has not been made; type: rlcore env build nemo-gym; or name"),
    ],
)
def test_options_that_cannot_work_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], said: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ValidationError, match=said):
        NemoGymOptions(**options)


def test_rows_of_a_file_have_messages(tmp_path: Path) -> None:
    given = {"input": [{"role": "developer", "content": "be short"}, {"role": "user", "content": "3*4"}], "tools": []}
    (tmp_path / "rows.jsonl").write_text(json.dumps({"responses_create_params": given, "answer": "12"}) + "\n")
    (row,) = NemoGym.rows(str(tmp_path / "rows.jsonl"))
    assert row["messages"] == [{"role": "system", "content": "be short"}, {"role": "user", "content": "3*4"}]
    assert (row["responses_create_params"], row["answer"]) == (given, "12")


def test_a_file_that_is_none_of_nemo_gym_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"messages": []}\n')
    with pytest.raises(DataError, match=r"rows.jsonl, line 1: it has no responses_create_params"):
        list(NemoGym.rows(str(tmp_path / "rows.jsonl")))
    with pytest.raises(DataError, match="No such file or directory; name a JSONL file"):
        list(NemoGym.rows(str(tmp_path / "none.jsonl")))


def test_a_masked_sample_has_no_reward() -> None:
    masked = _result({"reward": 1.0, "mask_sample": True}, {"steps": 1.0})
    assert (masked.outcome, masked.reward) == ("timeout", None)
    assert _result({"reward": 0.5, "accuracy": True}, {"steps": 1.0}).extra == {"accuracy": 1.0, "steps": 1.0}
