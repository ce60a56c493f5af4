"""Which program is taken from a response."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlcore_plugin_code.extract import fenced, found_program, last_program

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


READS = "n = int(input())\nprint(n + 1)\n"
USE = "```python\nprint(f(3))  # 4\n```\n"
DEFINES = "def f(n):\n    return n + 1\n"

ENDED_ODDLY = {
    "at the end of a line": ("```python\nprint(1)```", "print(1)"),
    "at the end of a line, text after": ("```python\nprint(1)```\nThat is it.\n", "print(1)"),
    "at the end of a line, output after": ("```python\nprint(1)```\nprints\n```\n1\n```\n", "print(1)"),
    "at the end of a line, blanks after": ("```python\nprint(1)``` \nx\n", "print(1)"),
    "deeper than it may": ("```python\nprint(1)\n        ```\nThat is it.\n", "print(1)\n"),
    "deeper, output after": ("1. So:\n```python\nprint(1)\n     ```\n   prints\n```\n1\n```\n", "print(1)\n"),
    "two at ends of lines": ("```python\nprint(1)```\nor\n```python\nprint(2)```\n", "print(2)"),
    "in a text of the program": ('```python\nx = "```"\nprint(x)\n```\n', 'x = "```"\nprint(x)\n'),
    "in a remark of the program": ("```python\nx = 1  # ends with ```\nprint(x)\n```\n", "x = 1  # ends with ```\nprint(x)\n"),
    "in a remark, never closed": ("```python\nx = 1  # ends with ```\nprint(x)\n", None),
    "shorter than what opened": ("````python\nprint(1)```\n", None),
    "never": ("```python\nprint(1)\n", None),
}


@pytest.mark.parametrize("name", ENDED_ODDLY)
def test_fences_that_models_close_oddly(name):
    text, program = ENDED_ODDLY[name]
    assert last_program(text) == program


def found(text, languages=("python",), **wanted):
    program = found_program(text, languages, **wanted)
    return program and (program.language, program.text.decode())


def test_an_example_of_use_after_the_program_is_not_the_program():
    program = f"```python\n{DEFINES}```\n"
    assert found(f"{program}For example:\n{USE}", defines=("f",)) == ("python", DEFINES)
    assert found(f"{program}For example:\n{USE}") == ("python", "print(f(3))  # 4\n")
    reads = f"```python\n{READS}```\n"
    assert found(f"{reads}Run it:\n```python\nprint('3')\n```\n", reads_input=True) == ("python", READS)


@pytest.mark.parametrize(
    "head",
    [
        "def f(",
        "class f(object",
        "async def f(",
        "    def f(self",
        "f = lambda n",
        "f: Callable = (lambda n",
        "def  f (",
        "class Solution:\n    def f(self",
    ],
)
def test_what_defines_a_name(head):
    assert found(f"```python\n{head}): pass\n```\n{USE}", defines=("g", "f")) == ("python", f"{head}): pass\n")


@pytest.mark.parametrize("line", ["x = f(3)", "print(f)", "def ff(): pass", "g(f = 3)", "f == 3"])
def test_what_does_not(line):
    assert found(f"```python\n{DEFINES}```\n```python\n{line}\n```\n", defines=("f",)) == ("python", DEFINES)


@pytest.mark.parametrize(
    "read", ["input()", "sys.stdin.read()", "open(0).read()", "open( 0 )", "fileinput.input()", "os.read(0, 99)", "sys.stdin.buffer"]
)
def test_what_reads_input(read):
    assert found(f"```python\nx = {read}\n```\n```python\nprint(3)\n```\n", reads_input=True) == ("python", f"x = {read}\n")


def test_where_none_can_the_last_counts():
    assert found("```python\nA\n```\n```python\nB\n```\n", defines=("f",)) == ("python", "B\n")
    assert found("```python\nA\n```\n```python\nB\n```\n", reads_input=True) == ("python", "B\n")


def test_of_two_that_can_the_last_counts():
    assert found(f"```python\n{DEFINES}```\n```python\ndef f(n):\n    return 0\n```\n", defines=("f",)) == (
        "python",
        "def f(n):\n    return 0\n",
    )


def test_languages_that_are_asked_for():
    text = "```cpp\nC\n```\n```js\nJ\n```\n```python\nP\n```\n```\nB\n```\n```rust\nR\n```\n"
    assert found(text) == ("python", "P\n")
    assert found(text, ("cpp",)) == ("cpp", "C\n")
    assert found(text, ("cpp", "javascript")) == ("javascript", "J\n")
    assert found(text, ("javascript", "cpp", "python")) == ("python", "P\n")
    assert found("```\nB\n```\n", ("cpp",)) is None
    assert found("```\nB\n```\n", ("cpp", "python")) == ("python", "B\n")


@pytest.mark.parametrize("piece", ["x```\n", "x ```", "a`b``` ", "```python\nx```\n", "input(", "\n  x"])
def test_a_megabyte_ends_where_fences_are_read_twice(piece):
    text = "```python\n" + piece * ((1 << 20) // len(piece))
    found_program(text, ("python", "cpp", "javascript"), defines=("f",), reads_input=True)
