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
SECOND = {"humanevalplus": "humaneval", "mbppplus": "mbpp", "intellect2_code": "prime_intellect"}
NAMES = {path.stem: SECOND.get(path.stem, path.stem) for path in sorted(FILES.glob("*.jsonl"))}
FORMATS = {spec.name: pkgutil.resolve_name(spec.target)() for spec in rlcore_register_row_formats()}


def rows(name):
    return [json.loads(line) for line in (FILES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def test_there_is_a_file_of_every_format():
    assert set(NAMES.values()) == set(FORMATS)
    assert len(NAMES) == 18


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
    ("apps", {"input_output": '{"fn_name": "f", "inputs": [], "outputs": []}'}, "this row has no tests"),
    ("prime_intellect", {"task_type": "verifiable_math", "problem_id": "vfm_1"}, "verifiable_math"),
    ("prime_intellect", {"verification_info": '{"test_cases": [{"input": "1"}]}'}, "verification_info.test_cases"),
    ("prime_intellect", {"verification_info": '{"test_cases": "{"}'}, '"verification_info.test_cases" is text that is not JSON'),
    ("deepcoder", {"tests": ""}, '"tests" is empty'),
    ("deepcoder", {"tests": "[{"}, '"tests" is text that is not JSON'),
    ("deepcoder", {"tests": "[]"}, '"tests" is an empty list'),
    ("deepcoder", {"tests": '[{"input": "1"}]'}, '"tests" must be a list of tests'),
    ("deepcoder", {"tests": '[{"input": "1", "output": "1", "testtype": "functional"}]', "metadata": None}, "func_name"),
    ("deepcoder", {"tests": '[{"input": "1", "output": "1", "testtype": "interactive"}]'}, "'interactive'"),
    (
        "deepcoder",
        {"tests": '[{"input": "1", "output": "1"}, {"input": [1], "output": [1], "type": "function_call", "fn_name": "f"}]'},
        "a function and of a whole program",
    ),
    ("deepcoder", {"metadata": "{"}, '"metadata" is text that is not JSON'),
    ("deepcoder", {"problem": None}, '"problem"'),
    ("rllm_code", {"ground_truth": "5"}, '"ground_truth" must be a list of tests'),
    ("intellect3_code", {"info": "{}"}, '"info.tests" is missing'),
    ("intellect3_code", {"info": "[1]"}, '"info" must be an object'),
    ("intellect3_code", {"info": '{"tests": "x"}'}, '"info.tests" is text that is not JSON'),
    ("codeforces", {"official_tests": []}, '"official_tests" is empty'),
    ("codeforces", {"official_tests": [{"input": "1"}]}, '"official_tests" must be a list'),
    ("codeforces", {"input_mode": "file"}, '"input_mode"'),
    ("codeforces", {"interaction_format": "Ask the judge."}, "interaction_format"),
    ("codeforces", {"language": "cpp"}, '"language"'),
    ("kodcode", {"test": " "}, '"test"'),
    ("kodcode", {"test": '{"stdin": []}'}, "outputs"),
    ("leetcode", {"entry_point": "addK"}, '"entry_point"'),
    ("leetcode", {"starter_code": ""}, '"starter_code"'),
    ("dolci_code", {"dataset": ["math"]}, '"dataset"'),
    ("dolci_code", {"ground_truth": ["x"]}, '"ground_truth" is text that is not JSON'),
    ("dolci_code", {"dataset": ["code"], "ground_truth": ["{}"]}, "assert statements"),
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


NEAR = [
    ("leetcode", {"entry_point": "addK"}),
    ("humaneval", {"entry_point": "Solution().addK"}),
    ("humaneval", {"prompt": "import math\n"}),
    ("deepcoder", {"answer": "5"}),
    ("deepcoder", {"tests": "all pass"}),
    ("deepcoder", {"tests": '[{"name": "test_1"}]'}),
    ("rllm_code", {"ground_truth": "[1, 2]"}),
    ("rllm_code", {"data_source": None}),
    ("intellect3_code", {"info": '{"source": "x"}'}),
    ("codeforces", {"description": None}),
    ("kodcode", {"test": None}),
    ("dolci_code", {"dataset": ["ifeval"]}),
    ("prime_intellect", {"task_type": "code_output_prediction", "problem_id": "p1"}),
]


@pytest.mark.parametrize(("name", "change"), NEAR)
def test_a_row_of_almost_these_columns_is_not_recognised(name, change):
    assert not FORMATS[name].recognises(rows(name)[0] | change)


def test_the_code_of_intellect3_has_no_answer_as_published():
    row = {name: value for name, value in rows("intellect3_code")[0].items() if name != "answer"}
    assert [name for name, one in FORMATS.items() if one.recognises(row)] == ["intellect3_code"]
    unmarked = {name: value for name, value in row.items() if not name.startswith("avg@")}
    assert not any(one.recognises(unmarked) for one in FORMATS.values())


@pytest.mark.parametrize("place", [place for place, row in enumerate(rows("dolci_code")) if isinstance(row["ground_truth"], list)])
def test_the_code_of_dolci_rl_zero_names_no_verifier(place):
    row = {name: rows("dolci_code")[place][name] for name in ("prompt", "ground_truth")} | {"id": "x", "solution": "print(1)"}
    assert [name for name, one in FORMATS.items() if one.recognises(row)] == ["dolci_code"]
    assert FORMATS["dolci_code"].convert(row)["test_cases"] == FORMATS["dolci_code"].convert(rows("dolci_code")[place])["test_cases"]
    for truth in (["5"], ["[1, 2]"], ["["], '["assert f() == 1"]', ["[]"]):
        assert not FORMATS["dolci_code"].recognises(row | {"ground_truth": truth})


def test_an_early_version_of_kodcode_names_its_tests_test_code():
    for row in rows("kodcode"):
        early = {"test_code" if name == "test" else name: value for name, value in row.items()}
        assert [name for name, one in FORMATS.items() if one.recognises(early)] == ["kodcode"]
        assert FORMATS["kodcode"].convert(early)["test_cases"] == FORMATS["kodcode"].convert(row)["test_cases"]


def test_a_row_of_leetcode_dataset_is_not_one_of_humaneval():
    row = rows("leetcode")[0]
    assert [name for name, one in FORMATS.items() if one.recognises(row)] == ["leetcode"]
    tests = FORMATS["leetcode"].convert(row)["test_cases"]
    assert "check(Solution().twoSum)" in tests["test_file"]
    assert tests["names"] == ["Solution"]


def test_the_prompt_of_a_row_names_what_a_program_must_define():
    for name in ("kodcode", "leetcode", "rllm_code"):
        for row in rows(name):
            made = FORMATS[name].convert(row)
            needed = made["test_cases"].get("names") or [made["test_cases"].get("fn_name", "")]
            assert all(one in made["messages"][-1]["content"] for one in needed), row
    assert not FORMATS["dolci_code"].convert(rows("dolci_code")[0])["messages"][0]["content"].startswith("user:")


def test_a_checker_of_codeforces_whose_package_is_missing_judges_nobody(tmp_path):
    tester = RunTester(tmp_path, in_process=True)
    row = rows("codeforces")[6]
    tester.write_jsonl("raw.jsonl", [row | {"generated_checker": "import no_such_package\n" + row["generated_checker"]}])
    done = tester.run("score", "raw.jsonl", "--reward", "code", "--workers", "1", "--json", "--out", "out.jsonl")
    assert "no_such_package" in (tmp_path / "out.jsonl").read_text(encoding="utf-8"), done.stderr


IMPORTS = {
    "humanevalplus": (
        {
            "task_id": "HumanEval/900",
            "prompt": 'from typing import List\n\n\ndef spread(xs: List[float]) -> float:\n    """Return the standard deviation."""\n',
            "entry_point": "spread",
            "test": "import numpy as np\nimport math\n\n\ndef check(candidate):\n    assert np.allclose(candidate([1.0, 3.0]), 1.0)\n",
        },
        "def spread(xs: List[float]) -> float:\n    return math.sqrt(np.var(xs))",
        "def spread(xs: List[float]) -> float:\n    return math.fsum(xs)",
    ),
    "mbppplus": (
        {
            "task_id": 900,
            "code": "import math\ndef circle(r):\n  return math.pi * r",
            "prompt": "Write a function for half of a circle.",
            "source_file": "x",
            "test_imports": ["import math"],
            "test_list": ["assert math.isclose(circle(2), 6.283185307, rel_tol=0.001)"],
            "test": "import numpy as np\nfrom math import inf\n\nassert np.allclose(circle(2), 6.283185307)\nassert circle(inf) == inf\n",
        },
        "def circle(r):\n    return math.pi * r if r != inf else np.inf",
        "def circle(r):\n    return math.tau * r",
    ),
    "mbpp": (
        {
            "task_id": 901,
            "code": "import math\ndef circle(r):\n  return math.pi * r",
            "prompt": "Write a function for half of a circle.",
            "source_file": "x",
            "test_imports": ["import math"],
            "test_list": ["assert math.isclose(circle(2), 6.283185307, rel_tol=0.001)"],
        },
        "def circle(r):\n    return math.pi * r",
        "def circle(r):\n    return math.tau * r",
    ),
}


@pytest.mark.parametrize("name", IMPORTS)
def test_a_program_may_use_what_its_row_imports(name, tmp_path):
    row, right, wrong = IMPORTS[name]
    tester = RunTester(tmp_path, in_process=True)
    tester.write_jsonl("raw.jsonl", [row | {"completion": [f"```python\n{text}\n```" for text in (right, wrong, "import math\n" + right)]}])
    tester.run("score", "raw.jsonl", "--reward", "code", "--out", "scores.jsonl", "--workers", "1").assert_ok()
    scores = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["outcome"] for row in scores] == ["ok", "wrong", "ok"], [row.get("reason") for row in scores]


def test_what_a_row_imports_comes_once_and_before_the_stub():
    made = FORMATS["humaneval"].convert(IMPORTS["humanevalplus"][0])["test_cases"]["before"]
    assert made.startswith("import numpy as np\nimport math\nfrom typing import List\n\n\ndef spread")
    row = IMPORTS["humanevalplus"][0] | {
        "test": "from typing import List\ndef check(candidate):\n    import math\n    assert candidate([])\n"
    }
    assert FORMATS["humaneval"].convert(row)["test_cases"]["before"] == row["prompt"], "an import inside a function is no global"
