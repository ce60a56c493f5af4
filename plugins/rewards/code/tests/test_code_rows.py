"""Rows of published data sets, as they come: each file holds ten, written by hand from the published schema, each with a right and a wrong
program."""

import base64
import json
import os
import pickle
import pkgutil
import zlib
from pathlib import Path

import pytest
from rlcore_plugin_code import rlcore_register_row_formats
from rlcore_plugin_code.reward import CodeReward
from rlcore_plugin_code.rows.livecodebench import pickled_text

from rlcore.api.data import BadRow
from rlcore.testing import RunTester

FILES = Path(__file__).parent / "rows"
NAMES = {path.stem: {"humanevalplus": "humaneval", "mbppplus": "mbpp"}.get(path.stem, path.stem) for path in sorted(FILES.glob("*.jsonl"))}
FORMATS = {spec.name: pkgutil.resolve_name(spec.target)() for spec in rlcore_register_row_formats()}


def rows(name):
    return [json.loads(line) for line in (FILES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def test_there_is_a_file_of_every_format():
    assert set(NAMES.values()) == set(FORMATS)
    assert len(NAMES) == 10


@pytest.mark.parametrize("name", NAMES)
def test_each_row_is_recognised_by_its_format_alone_and_can_be_judged(name):
    assert len(rows(name)) == 10
    for row in rows(name):
        before = json.dumps(row)
        assert [found for found, one in FORMATS.items() if one.recognises(row)] == [NAMES[name]]
        made = FORMATS[NAMES[name]].convert(row)
        assert json.dumps(row) == before
        assert made["messages"][-1]["role"] == "user"
        assert CodeReward().check(made) is None


@pytest.mark.parametrize("name", NAMES)
def test_score_reads_them_as_they_are(name, tmp_path):
    tester = RunTester(tmp_path, in_process=True)
    raw = rows(name)
    tester.write_jsonl("raw.jsonl", raw)
    done = tester.run("score", "raw.jsonl", "--reward", "code", "--out", "scores.jsonl", "--workers", "1").assert_ok()
    scores = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["outcome"] for row in scores] == [wanted for row in raw for wanted in row["expect"]], [row.get("reason") for row in scores]
    assert f"read by the row format {NAMES[name]} of " in done.stdout + done.stderr


class Bomb:
    def __reduce__(self):
        return os.system, ("touch bomb",)


@pytest.mark.parametrize("value", [Bomb(), ["[]"], ["[]", "[]"], 3, b"[]", {"a": "[]"}])
def test_a_pickle_that_is_more_than_one_text_is_refused_and_never_run(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    row = rows("livecodebench")[0] | {"private_test_cases": base64.b64encode(zlib.compress(pickle.dumps(value))).decode()}
    with pytest.raises(BadRow, match="pickle"):
        FORMATS["livecodebench"].convert(row)
    assert not (tmp_path / "bomb").exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_the_text_of_a_pickle_of_any_protocol(protocol):
    text = json.dumps([{"input": "é\n" * 200, "output": "x"}], ensure_ascii=False)
    assert pickled_text(pickle.dumps(text, protocol)) == text


@pytest.mark.parametrize(
    "packed", ["!", "aGVsbG8=", base64.b64encode(zlib.compress(b"no pickle")).decode(), base64.b64encode(zlib.compress(b"x")[:-3]).decode()]
)
def test_what_is_packed_otherwise_is_one_sentence(packed):
    with pytest.raises(BadRow) as caught:
        FORMATS["livecodebench"].convert(rows("livecodebench")[0] | {"private_test_cases": packed})
    assert "private_test_cases" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bomb_of_zlib_is_refused(monkeypatch):
    monkeypatch.setattr("rlcore_plugin_code.rows.livecodebench._LARGEST", 1 << 16)
    packed = base64.b64encode(zlib.compress(pickle.dumps(json.dumps(["x" * (1 << 20)])))).decode()
    with pytest.raises(BadRow, match="more than"):
        FORMATS["livecodebench"].convert(rows("livecodebench")[0] | {"private_test_cases": packed})


BAD = [
    ("apps", {"input_output": ""}, "no tests"),
    ("apps", {"input_output": "{"}, "not JSON"),
    ("apps", {"input_output": '{"inputs": ["1"]}'}, "outputs"),
    ("apps", {"input_output": '{"inputs": ["1"], "outputs": ["\\n"]}'}, "of which 0 are tests"),
    ("apps", {"question": " "}, "question"),
    ("code_contests", {"input_file": "in.txt"}, "a file instead of standard input"),
    ("code_contests", {"public_tests": [3]}, "public_tests"),
    (
        "livecodebench",
        {"metadata": "{}", "public_test_cases": '[{"input": "1", "output": "1", "testtype": "functional"}]', "private_test_cases": "[]"},
        "func_name",
    ),
    ("livecodebench", {"public_test_cases": '[{"input": "1", "output": "1", "testtype": "other"}]'}, "types"),
    ("humaneval", {"test": ""}, '"test"'),
    ("mbpp", {"test_list": []}, "test_list"),
    ("prime_code", {"ability": "math"}, "ability"),
    ("prime_code", {"reward_model": "x"}, "reward_model"),
    ("prime_intellect", {"verification_info": "{}"}, "test_cases"),
]


@pytest.mark.parametrize(("name", "change", "words"), BAD)
def test_a_row_that_cannot_be_converted_says_why(name, change, words):
    with pytest.raises(BadRow) as caught:
        FORMATS[name].convert(rows(name)[0] | change)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_row_with_messages_is_nobody_s():
    row = {"messages": {"role": "user", "content": "x"}, "test_cases": {"inputs": ["1"], "outputs": ["1"]}}
    assert not any(one.recognises(row) for one in FORMATS.values())
