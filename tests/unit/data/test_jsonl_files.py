"""Reading files: every damage is named with file:line, nothing is loaded by half."""

from __future__ import annotations

import codecs
import gzip
import json
import os
from pathlib import Path

import pytest

from rlcore.contracts.errors import DataError
from rlcore.contracts.specs import RewardSpec
from rlcore.data import load_eval
from rlcore.data.jsonl import JsonFile
from rlcore.data.rows import BadRow
from rlcore.registry.plugin_registry import Registry

REGISTRY = Registry.discover()
BOXED = RewardSpec(name="boxed", target="m:Boxed", summary="", requires=("gt_answer",))
GOOD = '{"messages": {"role": "user", "content": "é"}, "gt_answer": "3"}'


def refused(folder: Path, content: bytes | str) -> str:
    path = folder / "train.jsonl"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError) as caught:
        load_eval(path, [BOXED], REGISTRY)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(folder) + "/", "")


def test_blank_lines_windows_ends_and_a_byte_order_mark_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_bytes(codecs.BOM_UTF8 + f"{GOOD}\r\n\r\n  \n{GOOD}".encode())
    data = load_eval(path, [BOXED], REGISTRY)
    assert [prompt.prompt_id for prompt in data.prompts] == ["train:1", "train:4"]
    assert [prompt.index for prompt in data.prompts] == [0, 1]
    assert data.prompts[1].source == f"{path}:4"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (f"[\n{GOOD}\n]".encode(), ("train.jsonl:1: not JSON", "one JSON list", "name ends in .json")),
        (f"[{GOOD}]".encode(), ("train.jsonl:1: a row must be an object", "one JSON list", "name ends in .json")),
        (b"prompt,gt_answer\n1 + 2,3\n", ("train.jsonl:1: not JSON", "looks like CSV", "name ends in .csv")),
        (b"PAR1" + bytes(99), ("train.jsonl: the file is Parquet", "name end in .parquet")),
        (b"(\xb5/\xfd" + bytes(99), ("train.jsonl: the file is packed with zstd", "unpack it")),
        (b"PK\x03\x04" + bytes(99), ("train.jsonl: the file is a zip archive", "unpack it")),
        (gzip.compress(GOOD.encode() * 9, mtime=0)[:-20], ("train.jsonl: the gzip file is damaged or cut short",)),
    ],
)
def test_content_that_disagrees_with_the_name_is_named(tmp_path: Path, content: bytes, words: tuple[str, ...]) -> None:
    said = refused(tmp_path, content)
    assert all(word in said for word in words), said


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.jsonl.gz", f"{GOOD}\n{GOOD}\n"),
        ("train.jsonl", f"{GOOD}\n{GOOD}\n"),
        ("train.json.gz", f"[\n{GOOD},\n{GOOD}]"),
    ],
)
def test_gzip_is_read_by_its_content(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(codecs.BOM_UTF8 + text.encode()))
    data = load_eval(path, [BOXED], REGISTRY)
    assert [(prompt.messages[-1].content, prompt.columns["gt_answer"]) for prompt in data.prompts] == [("é", "3")] * 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "train.jsonl: the data is empty"),
        ("\n  \n\r\n", "train.jsonl: the data is empty"),
        (f"{GOOD}\n{{", "train.jsonl:2: not JSON at column 2 (expecting property name"),
        (f"{GOOD} {GOOD}", "train.jsonl:1: not JSON at column 66 (extra data"),
        (f"[{GOOD}]", "train.jsonl:1: a row must be an object"),
        ('{"gt_answer": NaN}', "train.jsonl:1: NaN is not JSON"),
        ('{"gt_answer": -Infinity}', "train.jsonl:1: -Infinity is not JSON"),
        ('{"a": 1e999}', "train.jsonl:1: the number 1e999 is too large"),
        ('{"a": 1' + "0" * 50_000 + "}", "train.jsonl:1: a number has 50001 digits, and 50000 are the limit; leave that row out"),
        ("[" * 100_000, "train.jsonl:1: not usable as JSON (nested too deeply)"),
        ('{"a": 1, "a": 2}', 'train.jsonl:1: the key "a" occurs twice'),
        ('{"a": "\\ud800"}', "train.jsonl:1: the line escapes half a surrogate pair"),
        (f"{GOOD}\n".encode() + b'{"a": "\xe9"}', "train.jsonl:2: byte 73 of the file (0xe9) is not UTF-8"),
        (codecs.BOM_UTF8 + b"\xff", "train.jsonl:1: byte 3 of the file (0xff) is not UTF-8"),
        (GOOD.encode("utf-16"), "train.jsonl:1: byte 0 of the file (0xff) is not UTF-8"),
        (f"{GOOD}\n[]\n{GOOD}\n[]\n{{\n", "train.jsonl:2: a row must be an object"),
    ],
)
def test_damage_is_named(tmp_path: Path, content: bytes | str, message: str) -> None:
    assert refused(tmp_path, content).startswith(message)


def test_the_first_bad_row_is_named_and_the_others_counted(tmp_path: Path) -> None:
    assert refused(tmp_path, f"{GOOD}\n[]\n{GOOD}\n[]\n{{\n").endswith(
        "(and 2 more bad rows in this file; --bad-rows drop leaves them out)"
    )
    assert refused(tmp_path, "[]\n[]").endswith("(and 1 more bad row in this file)")


def test_ids_must_be_unique(tmp_path: Path) -> None:
    row = json.loads(GOOD) | {"id": "a"}
    text = "\n".join(json.dumps(r) for r in [row, row | {"id": "b"}, row, row])
    assert refused(tmp_path, text) == ('train.jsonl:3: the id "a" is taken by train.jsonl:1; ids must be unique (and 1 more repeated)')


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.jsonl: no such data file; check the path that was typed"):
        load_eval(tmp_path / "nothing.jsonl", [BOXED], REGISTRY)


MIB = 1 << 20
BOMBS = {
    "one line": b'{"messages": "' + b"x" * 8 * MIB + b'"}',
    "one line of nothing": b" " * 8 * MIB,
    "blank lines": b"\n" * 8 * MIB,
    "good rows": GOOD.encode() + b"\n" + f"{GOOD}\n".encode() * (8 * MIB // len(GOOD.encode())),
    "brackets": b"[" * 8 * MIB,
    "a list": b"[" + b"{}," * (8 * MIB // 3) + b"{}]",
}


@pytest.mark.parametrize("content", BOMBS.values(), ids=list(BOMBS))
@pytest.mark.parametrize("name", ["train.jsonl", "train.jsonl.gz", "train.json.gz", "train.csv.gz"])
def test_a_file_that_unpacks_to_far_more_than_its_size_is_refused(
    tmp_path: Path, name: str, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlcore.data.jsonl._ALWAYS_UNPACKED", MIB)
    monkeypatch.setattr("rlcore.data.jsonl._ALWAYS_LINES", 10**9)
    monkeypatch.setattr("rlcore.data.dataset._MOST_BAD", 10**9)
    path = tmp_path / name
    path.write_bytes(gzip.compress(content if ".json" in name else b"a,b,c\n" + content.translate(None, b'{}"')))
    with pytest.raises(DataError, match=rf"{name}: it unpacks to more than 1 MiB, .* if you trust it, unpack it with gunzip$"):
        load_eval(path, [BOXED], REGISTRY)


@pytest.mark.parametrize("line", [b"", b"{}", GOOD.encode()])
@pytest.mark.parametrize("name", ["train.jsonl.gz", "train.csv.gz"])
def test_a_file_that_unpacks_to_lines_without_number_is_refused(
    tmp_path: Path, name: str, line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlcore.data.jsonl._ALWAYS_LINES", 1000)
    path = tmp_path / name
    line = line if ".json" in name else line.translate(None, b'{}"')
    path.write_bytes(gzip.compress((line + b"\n") * 1001 + GOOD.encode()))
    with pytest.raises(DataError, match=rf"{name}: it unpacks to more than 1000 lines, which is the limit for a gzip file of its size"):
        load_eval(path, [BOXED], REGISTRY)


def test_a_gzip_file_may_unpack_to_many_times_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore.data.jsonl._ALWAYS_UNPACKED", 1)
    path = tmp_path / "train.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(GOOD for _ in range(40)).encode()))
    assert path.stat().st_size * 20 < 40 * len(GOOD) < path.stat().st_size * 50
    assert len(load_eval(path, [BOXED], REGISTRY)) == 40


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_without_an_end_is_refused_with_its_number(
    tmp_path: Path, packed: bool, end: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlcore.host.bounded_reading.LONGEST_ROW", MIB)
    content = f"{GOOD}\n\n".encode() + b"x" * (MIB + 1) + end
    said = refused(tmp_path, gzip.compress(content) if packed else content)
    assert said == "train.jsonl:3: the line has more than 1 MiB, which is the limit for a row; split that row, or leave it out"
    assert refused(tmp_path, content.replace(b"xx", b"", 1)).startswith("train.jsonl:3: not JSON")


def test_a_file_with_a_hole_for_a_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore.host.bounded_reading.LONGEST_ROW", MIB)
    for name in ("train.jsonl", "train.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 40)  # takes no room on the disk
        with pytest.raises(DataError, match=rf"{name}:1: the line has more than 1 MiB"):
            load_eval(tmp_path / name, [BOXED], REGISTRY)


def test_a_list_that_memory_would_not_hold_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore.data.jsonl._LONGEST_LIST", MIB)
    path = tmp_path / "train.json"
    for start in (b"[", codecs.BOM_UTF8 + b" \n["):
        with path.open("wb") as file:
            file.write(start)
            file.truncate(1 << 40)
        with pytest.raises(
            DataError, match=r"train\.json: the list has more than 1 MiB, which is the limit; write one row per line in a \.jsonl"
        ):
            load_eval(path, [BOXED], REGISTRY)


def test_bad_rows_are_counted_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlcore.data.dataset._MOST_BAD", 3)
    assert refused(tmp_path, f"{GOOD}\n[]\n[]\n[]\n[]\n").endswith(
        "(and at least 2 more bad rows in this file; --bad-rows drop leaves them out)"
    )
    assert refused(tmp_path, f"{GOOD}\n[]\n[]\n").endswith("(and 1 more bad row in this file; --bad-rows drop leaves them out)")


@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv", "parquet"])
def test_what_is_no_regular_file_hangs_nobody(tmp_path: Path, suffix: str) -> None:
    os.mkfifo(tmp_path / f"pipe.{suffix}")
    (tmp_path / f"zero.{suffix}").symlink_to("/dev/zero")
    (tmp_path / f"loop.{suffix}").symlink_to(tmp_path / f"loop.{suffix}")
    for name in ("pipe", "zero", "loop"):
        with pytest.raises(DataError, match=rf"{name}\.{suffix}: "):
            load_eval(tmp_path / f"{name}.{suffix}", [BOXED], REGISTRY)


LONG = "1" + "0" * 5000


@pytest.mark.parametrize("name", ["train.jsonl", "train.json"])
def test_a_number_of_many_digits_is_a_number(tmp_path: Path, name: str) -> None:
    row = GOOD[:-1] + f', "case": [{{"n": {LONG}, "m": -{LONG}}}]}}'
    (tmp_path / name).write_text(f"[{row}]" if name.endswith(".json") else row, encoding="utf-8")
    data = load_eval(tmp_path / name, [BOXED], REGISTRY)
    assert data.prompts[0].columns["case"] == [{"n": 10**5000, "m": -(10**5000)}]


def test_a_long_number_beside_an_escape_is_a_number_and_half_a_surrogate_is_still_refused(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(GOOD[:-1] + f', "n": {LONG}, "text": "\\u00e9"}}', encoding="utf-8")
    assert load_eval(tmp_path / "train.jsonl", [BOXED], REGISTRY).prompts[0].columns["n"] == 10**5000
    assert "half a surrogate pair" in refused(tmp_path, f'{{"n": {LONG}, "text": "\\ud800"}}')


def test_a_long_number_that_must_be_text_is_named_in_short(tmp_path: Path) -> None:
    said = refused(tmp_path, f'{{"messages": {{"role": "user", "content": "x"}}, "gt_answer": {LONG}}}')
    assert said == 'train.jsonl:1: "gt_answer" must be text, not a number (10000000000000000000000…); put it in quotes'


def test_other_damage_beside_a_long_number_is_named(tmp_path: Path) -> None:
    assert "NaN is not JSON" in refused(tmp_path, f'{{"n": {LONG}, "gt_answer": NaN}}')
    assert 'the key "n" occurs twice' in refused(tmp_path, f'{{"n": {LONG}, "n": 1}}')


def test_a_list_of_turns_is_a_row_with_their_places_as_names(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "1 + 2"}, {"from": "assistant", "ground_truth": {"value": "3"}}]
    (tmp_path / "turns.json").write_text(json.dumps([turns, [1]]), encoding="utf-8")
    first, second = (row for _, row in JsonFile().rows(str(tmp_path / "turns.json")))
    assert first == {"0": turns[0], "1": turns[1]}
    assert isinstance(second, BadRow)
