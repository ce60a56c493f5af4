"""Which program is taken from a response."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore_plugin_code.extract import fenced, last_program

TEXTS = {
    "plain": ("```python\nA\n```", "A\n"),
    "text around": ("So:\n```python\nA\n```\nDone.", "A\n"),
    "py": ("```py\nA\n```", "A\n"),
    "python3": ("```python3\nA\n```", "A\n"),
    "capitals": ("```PyThOn\nA\n```", "A\n"),
    "a blank before the label": ("``` python\nA\n```", "A\n"),
    "words after the label": ("```python title=x\nA\n```", "A\n"),
    "no label": ("```\nA\n```", "A\n"),
    "the last one": ("```python\nA\n```\n```python\nB\n```", "B\n"),
    "a label beats none": ("```python\nA\n```\nprints\n```\n3\n```", "A\n"),
    "a label beats none, before it too": ("```\nA\n```\n```python\nB\n```\n", "B\n"),
    "another language is skipped": ("```python\nA\n```\n```cpp\nB\n```", "A\n"),
    "only another language": ("```cpp\nB\n```", None),
    "a longer word is another label": ("```pythonic\nB\n```", None),
    "crlf": ("```python\r\nA\r\nB\r\n```\r\n", "A\r\nB\r\n"),
    "cr": ("x\r```python\rA\r```\r", "A\r"),
    "other line ends are content": ("```python\nA\u2028```\u0085B\x0c```\n```", "A\u2028```\u0085B\x0c```\n"),
    "tildes": ("~~~python\nA\n~~~", "A\n"),
    "tildes hold ticks": ("~~~python\nA\n```\nB\n~~~", "A\n```\nB\n"),
    "ticks hold tildes": ("```python\nA\n~~~\nB\n```", "A\n~~~\nB\n"),
    "longer fences hold shorter ones": ("````python\nA\n```\nB\n````", "A\n```\nB\n"),
    "a longer fence closes": ("```python\nA\n`````", "A\n"),
    "blanks after the fence that closes": ("```python\nA\n``` \t\n", "A\n"),
    "words after a fence do not close": ("```python\nA\n``` x\nB\n```", "A\n``` x\nB\n"),
    "indented": ("  1. x\n     ```python\n     if A:\n         B\n     ```\n", "if A:\n    B\n"),
    "indented by tabs": ("\t```python\n\tif A:\n\t\tB\n\t```\n", "if A:\n\tB\n"),
    "a tab is four columns": ("\t```python\n\tA\n       ```\n\tB\n", "A\n"),
    "deeper, where nothing else closes": ("\t```python\n\tA\n        ```\n\tB\n", "A\n"),
    "less indented content": ("  ```python\nA\n   B\n  ```", "A\n B\n"),
    "a fence in a string, indented": ('```python\nx = """\n    ```\n    """\n```', 'x = """\n    ```\n    """\n'),
    "indented less than four": ("```python\nA\n   ```\nB", "A\n"),
    "never closed": ("```python\nA\n", None),
    "the last never closed": ("```python\nA\n```\n```python\nB", "A\n"),
    "two ticks": ("``python\nA\n``", None),
    "inline": ("Use ```python A``` here", None),
    "inline at the start of a line": ("```python A```\n", None),
    "inline first": ("```x``` is it\n```python\nA\n```", "A\n"),
    "quoted": ("> ```python\n> A\n> ```", None),
    "not at the start of a line": ("x ```python\nA\n```", None),
    "nothing in it": ("```python\n```", ""),
    "no fence": ("print(1)", None),
    "empty": ("", None),
    "surrogates": ("```python\n\ud800\n```", "\ud800\n"),
    "no break space before the fence": ("\u00a0```python\nA\n```", None),
}


@pytest.mark.parametrize("name", TEXTS)
def test_program(name):
    text, program = TEXTS[name]
    assert last_program(text) == program


FENCES = st.lists(st.sampled_from(["```", "````", "~~~", "python", "py", "\n", "\r\n", "\r", " ", "\t", "`", "A", "    "]), max_size=40)


@given(program=FENCES.map("".join))
def test_what_is_fenced_comes_out_whole(program):
    assert last_program(fenced(program)) == program + "\n"
    assert last_program(f"First\n~~~~\nx\n~~~~\n{fenced('draft')}Then\n{fenced(program)}\nprints\n```\n3\n```\n") == program + "\n"


@given(text=FENCES.map("".join))
def test_a_program_is_a_piece_of_the_text(text):
    program = last_program(text)
    if program is not None and not any(line.startswith((" ", "\t")) for line in text.replace("\r", "\n").split("\n")):
        assert program in text
        assert last_program(text + "\nand so on") == program


@pytest.mark.parametrize(
    "piece",
    ["```python\n", "```\n", "`", "~", " ", "\t", "\n", "\r", "```python\n```\n", " ```", "\n \t", "``` ` ", "    ```\n", "```python "],
)
def test_a_megabyte_ends(piece):  # a pattern that backtracks would run into the timeout of the tests
    text = piece * ((1 << 20) // len(piece))
    last_program(text)
    assert last_program(f"{fenced('A')}\n{text}\n{'`' * len(text)}") is not None


@pytest.mark.parametrize("info", ["python3.11", "{python}", "{.python}", "python:main.py", "python,linenos", "pypy3", "Python {.lines}"])
def test_labels_that_people_write(info):
    assert last_program(f"```{info}\nprint(1)\n```\n") == "print(1)\n"


@pytest.mark.parametrize("info", ["pythonic", "cpp", "pyx", "ipython"])
def test_labels_of_something_else(info):
    assert last_program(f"```{info}\nprint(1)\n```\n") is None


@pytest.mark.parametrize("thought", ["```python\nx", "```\n", "~~~", "``` </think> ```python\nx"])
def test_a_fence_left_open_in_the_reasoning_does_not_swallow_the_answer(thought):
    assert last_program(f"<think>\n{thought}\n</think>\n```python\nprint(2)\n```\n") == "print(2)\n"


def test_a_program_in_the_reasoning_counts_where_none_follows():
    assert last_program("<think>\n```python\nprint(3)\n```\n</think>\nSo be it.") == "print(3)\n"


SAYS_IT = "print('</think>')"


@pytest.mark.parametrize(
    "after",
    [
        "",
        "Output:\n```\n5\n```\n",
        "Output:\n```\n</think>\n```\nand then\n```\n5\n```\n",
        "Output:\n~~~\n5\n~~~\n",
        "In C++:\n```cpp\nB\n```\nOutput:\n```\n5\n```\n",
    ],
)
@pytest.mark.parametrize("before", ["", "<think>\nSo.\n</think>\n", "<think>\n```python\ndraft\n```\n</think>\n"])
def test_a_program_that_says_where_reasoning_ends_is_not_cut_there(before, after):
    assert last_program(f"{before}```python\n{SAYS_IT}\n```\n{after}") == f"{SAYS_IT}\n"


@pytest.mark.parametrize("between", ["", "prints\n```\n</think>\n```\n", "```cpp\nB\n```\n"])
def test_the_last_program_counts_after_one_that_says_where_reasoning_ends(between):
    assert last_program(f"```python\n{SAYS_IT}\n```\n{between}```python\nB\n```\nprints\n```\n5\n```\n") == "B\n"


def test_a_draft_in_the_reasoning_gives_way_to_an_answer_without_a_label():
    assert last_program("<think>\n```python\ndraft\n```\n</think>\n```\nprint(2)\n```\n") == "print(2)\n"
