"""JSON that fits a schema."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from rlcore_plugin_adapters import rlcore_register_rewards
from rlcore_plugin_adapters.adapter_options import SchemaOptions
from rlcore_plugin_adapters.schema_reward import SchemaReward

from rlcore.api import Message, Outcome, PluginError, Reward, RewardInput
from rlcore.testing import RewardSuite

SPECS = {spec.name: spec for spec in rlcore_register_rewards()}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
GOOD = '{"name": "Ada", "age": 36}'


def item(text: str, schema: Any = SCHEMA) -> RewardInput:
    return RewardInput(messages=(Message(role="user", content="Who?"),), columns={"json_schema": schema}, text=text)


class TestJsonSchema(RewardSuite):
    spec = SPECS["json_schema"]
    options = SchemaOptions()

    def make(self) -> Reward:
        return SchemaReward(self.options)

    def honest(self) -> RewardInput:
        return item(GOOD)

    def wrong(self) -> RewardInput:
        return item('{"name": "Ada"}')


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (GOOD, Outcome.OK),
        (f"<think>{{}}</think>\n{GOOD}", Outcome.OK),
        (f"Here:\n```json\n{GOOD}\n```\nDone.", Outcome.OK),
        (f"```json\n{{}}\n```\n```json\n{GOOD}\n```", Outcome.OK),
        ('{"name": "Ada", "age": -1}', Outcome.WRONG),
        ('{"name": "Ada", "age": 36, "x": 1}', Outcome.WRONG),
        ('{"name": "Ada", "age": 1, "age": 36}', Outcome.MALFORMED),
        ('{"name": "Ada", "age": NaN}', Outcome.MALFORMED),
        (f"{GOOD} and more", Outcome.MALFORMED),
        (f"<think>{GOOD}", Outcome.MALFORMED),
        (f"```python\n{GOOD}\n```", Outcome.MALFORMED),
        ("[" * 100_000, Outcome.MALFORMED),
        ("", Outcome.MALFORMED),
    ],
)
def test_verdicts(text: str, outcome: Outcome) -> None:
    score = SchemaReward().score(item(text))
    assert (score.outcome, score.accuracy) == (outcome, float(outcome is Outcome.OK))


def test_where_the_json_stands() -> None:
    fenced = f"```json\n{GOOD}\n```"
    assert SchemaReward(SchemaOptions(where="text")).score(item(fenced)).outcome is Outcome.MALFORMED
    assert SchemaReward(SchemaOptions(where="fenced")).score(item(GOOD)).outcome is Outcome.MALFORMED
    assert SchemaReward(SchemaOptions(where="fenced")).score(item(fenced)).outcome is Outcome.OK


def test_the_reason_names_the_place() -> None:
    assert SchemaReward().score(item('{"name": "Ada", "age": -1}')).reason.startswith("['age']: -1 is less than the minimum")


def test_a_schema_as_text_or_in_a_file(tmp_path: Path) -> None:
    assert SchemaReward().score(item(GOOD, json.dumps(SCHEMA))).outcome is Outcome.OK
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA), encoding="utf-8")
    reward = SchemaReward(SchemaOptions(file=str(path)))
    reward.open()
    assert (reward.requires, reward.check({})) == ((), None)
    assert reward.score(RewardInput(messages=(), columns={}, text=GOOD)).outcome is Outcome.OK
    path.write_text('{"type": "objekt"}', encoding="utf-8")
    with pytest.raises(PluginError, match="is not a JSON Schema"):
        SchemaReward(SchemaOptions(file=str(path))).open()
    with pytest.raises(ValidationError, match="there is no file"):
        SchemaOptions(file=str(tmp_path / "absent.json"))


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({}, "no column json_schema"),
        ({"json_schema": {"type": "objekt"}}, "not a JSON Schema"),
        ({"json_schema": "{"}, "not a JSON Schema"),
        ({"json_schema": "[]"}, "not an object"),
    ],
)
def test_rows_that_cannot_be_judged(columns: dict[str, Any], says: str) -> None:
    assert says in str(SchemaReward().check(columns))


def test_no_schema_is_fetched_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though there is one."""
    monkeypatch.setenv("no_proxy", "*")
    asked: list[str] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            with pytest.raises(ValueError, match="which is not in it"):
                SchemaReward().score(item("{}", {"$ref": f"http://127.0.0.1:{server.server_address[1]}/schema.json"}))
        finally:
            server.shutdown()
            thread.join()
    assert asked == []
