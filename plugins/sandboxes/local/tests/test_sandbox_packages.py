"""Packages beside the standard library: numpy where it is installed, in an interpreter that has imported it already, each run apart."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from kit_sandbox import opened, run
from rlcore_plugin_sandbox import interpreter
from rlcore_plugin_sandbox.persistent_zygote import imports_of
from rlcore_plugin_sandbox.zygote_process import ZygoteProcess

from rlcore.api import SandboxError
from rlcore.api.sandbox import Job, Level, Limits, Sandbox
from tests.levels import LEVELS

WARM = "import sys\nprint('numpy' in sys.modules)"
SAYS = "import numpy as np\nprint(int(np.arange(5).sum()))"
HIDES = "m = __import__('num' + 'py')\nprint(int(m.arange(5).sum()))"


@pytest.mark.parametrize("program", [SAYS, HIDES, "import random, numpy.linalg\nprint(int(numpy.linalg.det(numpy.eye(3)) + 9))"])
def test_programs_import_numpy_whether_they_say_so_or_not(box, program: str) -> None:
    ran = run(box, program)
    assert (ran.stdout, ran.stderr) == (b"10\n", b"")


def test_a_module_among_the_files_may_import_it(box) -> None:
    ran = run(box, "import sums\nprint(sums.total)", holding={"sums.py": b"from numpy import arange\ntotal = int(arange(5).sum())"})
    assert ran.stdout == b"10\n"


def test_programs_without_it_have_none_of_it(box) -> None:
    """Neither in their modules nor in their memory, whatever ran before."""
    assert run(box, SAYS).ok
    ran = run(box, WARM)
    assert ran.stdout == b"False\n"
    with opened(box.level, backend_options={"packages": ()}) as bare:
        assert ran.memory_bytes < run(bare, WARM).memory_bytes + (2 << 20)


def test_it_is_imported_before_the_program_starts(box) -> None:
    assert run(box, f"if 0: import numpy\n{WARM}").stdout == b"True\n"


LEAVING = """
import numpy as np
np.left = 1; np.ndarray.__module__; np.seterr(all="raise"); np.set_printoptions(precision=1); np.random.seed(3)
np.linalg.det = None; np.pi = 3
kept = np.full(1 << 20, 7.25)
"""


def test_nothing_is_left_in_it_for_the_next_program(box) -> None:
    looks = "import numpy as np\nprint(hasattr(np, 'left'), np.geterr()['over'], np.pi > 3, np.linalg.det is None, np.array([1 / 3]))"
    before = run(box, looks).stdout
    assert before == b"False warn True False [0.33333333]\n"
    assert run(box, LEAVING).ok
    assert run(box, looks).stdout == before


def test_chance_is_new_in_each_run_and_as_always_with_a_seed(box) -> None:
    draws = {run(box, "import numpy as np\nprint(np.random.rand(), np.random.default_rng().random())").stdout for _ in range(3)}
    assert len(draws) == 3
    seeded = {
        run(box, "import numpy as np\nnp.random.seed(1)\nprint(np.random.rand(), np.random.default_rng(1).random())").stdout
        for _ in range(2)
    }
    assert len(seeded) == 1


def test_its_memory_is_bounded_as_that_of_every_program(box) -> None:
    ran = run(box, "import numpy as np\nnp.ones(1 << 28)", memory_bytes=512 << 20)
    assert (ran.exit_code, ran.limit and ran.limit.value) == (1, "memory")
    assert (
        run(box, "import numpy as np\ntry: np.ones(1 << 28)\nexcept MemoryError: print('coped')", memory_bytes=512 << 20).stdout
        == b"coped\n"
    )


def test_a_program_with_too_little_memory_for_it_fails_by_itself(box) -> None:
    """And not the sandbox: what was imported for it would leave it no room."""
    assert run(box, SAYS).ok
    for size in (64, 100, 128):
        ran = run(box, SAYS, memory_bytes=size << 20)
        assert ran.ok or ran.exit_code != 0 or ran.limit


def test_the_walls_are_those_of_every_program(box, host) -> None:
    body = "import numpy\nif 'numpy.random' not in sys.modules: hole('cold')\n" + "\n".join(
        (
            "attempt('read', lambda: open(H['secret']).read())",
            "attempt('list', os.listdir, H['folder'])",
            "attempt('write', lambda: open(os.path.dirname(numpy.__file__) + '/x', 'w'))",
            "attempt('signal', os.kill, H['victim'], 0)",
            "attempt('others', lambda: open(os.path.dirname(os.path.dirname(numpy.__file__)) + '/pydantic/__init__.py').read())",
            "attempt('tcp', socket.create_connection, ('127.0.0.1', H['port']), 1)",
            "attempt('memfd', lambda: os.memfd_create('x'))",
        )
    )
    assert host.attack(box, body).stdout == b"END\n"


def test_threads_that_a_package_starts_are_none(box) -> None:
    program = "import numpy as np\nimport os, threading\na = np.ones((200, 200)); (a @ a).sum()\nprint(threading.active_count())"
    assert run(box, program, processes=2).stdout == b"1\n"


@pytest.fixture(params=LEVELS)
def own(request):
    with opened(request.param) as sandbox:
        yield sandbox


def zygotes(box: Sandbox) -> list[ZygoteProcess | None]:
    return [kept.process for kept in (box._plain, box._warm) if kept is not None]


def test_the_second_zygote_starts_when_it_is_needed_and_is_replaced_when_it_dies(own) -> None:
    run(own, "print(1)")
    assert len(zygotes(own)) == 1
    assert run(own, SAYS).ok
    plain, warm = zygotes(own)
    os.killpg(warm.pid, signal.SIGKILL)
    assert run(own, SAYS).stdout == b"10\n"
    again = zygotes(own)[1]
    assert zygotes(own)[0] is plain
    assert again is not None
    assert again is not warm


def test_a_second_zygote_that_does_not_start_is_done_without(own, monkeypatch) -> None:
    monkeypatch.setattr("rlcore_plugin_sandbox.zygote_process._START_SECONDS", 0.001)
    for _ in range(2):
        assert run(own, SAYS).stdout == b"10\n"
        assert zygotes(own)[1] is None


def test_close_ends_both_and_their_folders(own) -> None:
    run(own, SAYS)
    pids, homes = [zygote.pid for zygote in zygotes(own)], [kept._home for kept in (own._plain, own._warm)]
    own.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not any(home and Path(home).exists() for home in homes)
    assert own.level is Level.NAMESPACES or all(homes)


@pytest.fixture
def package(tmp_path_factory, monkeypatch):
    """Makes a package of this name below /tmp, which programs have as their own; returns its folder."""

    def make(name: str, text: str) -> Path:
        parent = tmp_path_factory.mktemp("environment")
        for folder in (parent, parent / name, parent / f"{name}.libs"):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)
        (parent / name / "__init__.py").write_text(text)
        (parent / "other.py").write_text("told = 's3cr3t'")
        monkeypatch.syspath_prepend(str(parent))
        return parent / name

    return make


READING = """
import os
here = os.path.dirname(__file__)
data = open(here + "/data").read()
lib = open(here + "/../elsewhere.libs/lib").read()
"""
LYING_ANYWHERE = """
import os, elsewhere, elsewhere.part
folder = os.path.dirname(elsewhere.__file__)
print(elsewhere.part.value, elsewhere.data, elsewhere.lib, sorted(os.listdir(folder)))
for name, mode in (('/__init__.py', 'a'), ('/new', 'w'), ('/../other.py', 'r'), ('/../elsewhere/../other.py', 'r')):
    try: print('HOLE', open(folder + name, mode))
    except OSError: pass
open('/tmp/own', 'w').write('own')
print(open('/tmp/own').read(), os.path.exists('own') or os.path.exists('/tmp/own'))
"""


@pytest.mark.parametrize("level", LEVELS)
def test_a_package_may_lie_anywhere(level: str, package) -> None:
    """With what lies in it, and the folder of its libraries beside it, and nothing else."""
    folder = package("elsewhere", READING)
    (folder / "part.py").write_text("value = 3")
    (folder / "data").write_text("data")
    (folder.with_name("elsewhere.libs") / "lib").write_text("lib")
    with opened(level, backend_options={"packages": ("elsewhere",)}) as box:
        ran = run(box, LYING_ANYWHERE)
        assert ran.stdout == b"3 data lib ['__init__.py', 'data', 'part.py']\nown True\n", ran
        assert box.packages == {"elsewhere"}
        assert "; programs may import elsewhere)" in box.describe()
    assert sorted(path.name for path in folder.iterdir()) == ["__init__.py", "data", "part.py"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise RuntimeError('broken here')", "RuntimeError: broken here"),
        ("import os\nos._exit(3)", "exit code 3"),
        ("import ctypes\nctypes.string_at(0)", "signal 11"),
        ("import a_dependency_of_its_own", "No module named 'a_dependency_of_its_own'"),
    ],
)
@pytest.mark.parametrize("level", LEVELS)
def test_a_package_that_programs_cannot_import_is_said_to_be_none(level: str, text: str, reason: str, package) -> None:
    """At the start, and to whoever judges programs; those that try it find out."""
    package("broken", text)
    with opened(level, backend_options={"packages": ("broken",)}) as box:
        assert box.packages == frozenset()
        assert "; programs cannot import broken: " in box.describe()
        assert reason in box.describe()
        assert "\n" not in box.describe()
        assert run(box, "print(1)").stdout == b"1\n"
        assert run(box, "import broken").ok is False


def test_packages_that_are_not_there_are_refused_if_they_were_asked_for(box) -> None:
    with pytest.raises(SandboxError, match=r"packages names 'no_such_thing', which is not an installed package .*; install it"):
        opened(box.level, backend_options={"packages": ("no_such_thing",)})
    with opened(box.level, backend_options={"packages": ()}) as bare:
        assert b"ModuleNotFoundError" in run(bare, SAYS).stderr
        assert "import" not in bare.describe()
        assert bare.packages == frozenset()


def test_without_numpy_there_is_none_and_the_first_line_says_so(box, monkeypatch) -> None:
    assert box.packages == {"numpy"}
    monkeypatch.setattr(interpreter, "package", lambda name: [])
    with opened(box.level) as bare:
        assert b"ModuleNotFoundError" in run(bare, SAYS).stderr
        assert bare.packages == frozenset()
        assert "; programs cannot import numpy: it is not installed here)" in bare.describe()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import numpy", True),
        ("import math, numpy as np", True),
        ("  from numpy import *", True),
        ("x = 1; import numpy.linalg", True),
        ("try: from numpy.random import default_rng\nexcept ImportError: pass", True),
        (b"import numpy", True),
        ("print('numpy')", False),
        ("import numpyro", False),
        ("import math  # numpy", False),
        ("numpy = 3", False),
    ],
)
def test_what_a_program_says_of_its_imports(source, says: bool) -> None:
    imports = imports_of(["numpy"])
    assert imports is not None
    assert imports(Job(source=source)) is says
    assert imports(Job(argv=("/bin/true",))) is False
    assert imports(Job(source="import a", files={"a.py": b"import numpy", "b.txt": b"x"})) is True
    assert imports(Job(source="import a", files={"a.txt": b"import numpy"}, limits=Limits())) is False
    assert imports_of([]) is None
