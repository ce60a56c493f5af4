"""Which sandbox `open_sandbox` opens, what it is called with, and what is said if there is none."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from rlcore.api import PluginError, SandboxError
from rlcore.api.sandbox import Job, Level, Limit, ProgramResult, Sandbox, SandboxOptions, open_sandbox
from rlcore.registry import sandboxes
from rlcore.registry.plugin_registry import Registry
from rlcore.testing import FakeSandbox, PluginFolder
from rlcore.testing.sandboxes.fake_sandbox import FakeSandboxOptions

REMOTE = '''
from pydantic import BaseModel, ConfigDict
from rlcore.api.sandbox import Level, ProgramResult, Sandbox

class Options(BaseModel):
    """Where it is."""
    model_config = ConfigDict(extra="forbid", frozen=True)
    where: str
    level: str = ""

class Remote(Sandbox):
    """Elsewhere."""
    Options = Options
    level = Level.REMOTE

    def __init__(self, options):
        assert isinstance(options, Options), options
        self.options, self.closed = options, 0

    def run(self, job):
        return ProgramResult(exit_code=0, signal=None, stdout=job.stdin, stderr=b"")

    def describe(self):
        return f"remote ({self.options.where}, asked for {self.options.level})"

    def close(self):
        self.closed += 1
'''
PLUGIN = """
from rlcore.api import SandboxSpec, hookimpl
rlcore_api = "2.0"
PATH = "rlcore_plugin_elsewhere.box:"

@hookimpl
def rlcore_register_sandboxes():
    return [
        SandboxSpec(name="elsewhere", target=PATH + "Remote", config=PATH + "Options", summary="s", levels=("remote",)),
        SandboxSpec(name="liar", target=PATH + "Remote", config=PATH + "Options", summary="s"),
        SandboxSpec(name="dict", target="builtins:dict", summary="s"),
        SandboxSpec(name="plain", target="rlcore_plugin_elsewhere.box:plain", summary="s"),
        SandboxSpec(name="unwalled", target="rlcore_plugin_elsewhere.box:Unwalled", summary="s"),
        SandboxSpec(name="fenced", target="rlcore_plugin_elsewhere.box:Fenced", summary="s"),
    ]
"""
PLAIN = """
def plain(options):
    assert options == {"where": "there"}, options
    return Remote(Options(where="plain"))

class Unwalled(Sandbox):
    def __init__(self, options): ...
    run = describe = close = lambda self: None

class Fenced(Unwalled):
    level = "fence"
"""


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[PluginFolder]:
    """Registered sandboxes: one as it should be, one that claims no level, one that is none, one without a model, one that has no level,
    one of a level that nobody knows."""
    with PluginFolder(tmp_path / "site") as folder:
        folder.install("elsewhere", PLUGIN, files={"box.py": REMOTE + PLAIN})
        yield folder


class Elsewhere(Sandbox):
    """A backend as a user would write one."""

    level = Level.REMOTE

    def __init__(self, options) -> None:
        self.options = options

    def run(self, job) -> ProgramResult:
        return ProgramResult(exit_code=0, signal=None, stdout=job.stdin, stderr=b"")

    def describe(self) -> str:
        return f"remote ({self.options['where']})"

    def close(self) -> None: ...


def test_a_backend_elsewhere_gets_its_options() -> None:
    with open_sandbox(SandboxOptions(backend=f"{__name__}:Elsewhere", backend_options={"where": "there"})) as sandbox:
        assert sandbox.describe() == "remote (there)"
        assert sandbox.run(Job(source="", stdin=b"x")).stdout == b"x"


@pytest.mark.parametrize(
    "path",
    ["nowhere_at_all:Class", "os:NoSuchClass", "os", "", ":x", "os:", "a b:c", "os:name", "json:loads.x", "json:loads", "builtins:dict"],
)
def test_a_backend_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(SandboxError, match=r"sandbox\.backend .*(package\.module:Class|cannot be made)"):
        open_sandbox(SandboxOptions(backend=path))


def test_a_class_of_another_kind_is_told_what_to_derive_from() -> None:
    with pytest.raises(SandboxError, match=r"'json:JSONDecoder' is the class JSONDecoder, .* derived from rlcore\.api\.sandbox\.Sandbox"):
        open_sandbox(SandboxOptions(backend="json:JSONDecoder"))


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("name", ["elsewhere", "ELSEWHERE", "liar"])
def test_a_registered_sandbox_gets_an_instance_of_its_model_and_the_level(name: str) -> None:
    with open_sandbox(SandboxOptions(backend=name, level="remote", backend_options={"where": "there"})) as sandbox:
        assert sandbox.describe() == "remote (there, asked for remote)"


def test_the_fake_answers_as_its_options_say() -> None:
    said = FakeSandbox(FakeSandboxOptions(stdout="3", exit_code=2)).run(Job(source="", stdin=b"x"))
    assert (said.stdout, said.exit_code, said.limit) == (b"3", 2, None)
    assert FakeSandbox().run(Job(source="", stdin=b"x")).stdout == b"x"
    assert FakeSandbox().packages is None
    assert FakeSandbox(FakeSandboxOptions(packages={"numpy"})).packages == {"numpy"}
    assert FakeSandbox(FakeSandboxOptions(limit="cpu")).run(Job(source="")).limit is Limit.CPU


@pytest.mark.usefixtures("elsewhere")
def test_a_registered_sandbox_without_a_model_gets_the_mapping() -> None:
    with open_sandbox(SandboxOptions(backend="plain", backend_options={"where": "there"})) as sandbox:
        assert "plain" in sandbox.describe()


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backend": "elsewhere", "level": "none"}, r'sandbox\.level = "none" is not a level of sandbox elsewhere of .*; it gives remote$'),
        ({"backend": "liar", "level": "none"}, "'liar' gives level remote here, and sandbox.level asks for none"),
        ({"backend": "elsewhere", "readable": ("/opt",)}, r"sandbox\.readable names folders .* sandbox elsewhere of .* cannot give"),
        ({"backend": "elsewhere", "backend_options": {"where": 3}}, "sandbox.backend_options of elsewhere: where: .*string"),
        ({"backend": "elsewhere", "backend_options": {"level": "none"}}, r"holds level, which is set as sandbox\.level"),
        ({"backend": "dict"}, r"'builtins:dict' is the class dict, .* derived from rlcore\.api\.sandbox\.Sandbox"),
        (
            {"backend": "plain"},
            r"sandbox 'plain' of rlcore-plugin-elsewhere cannot be made: AssertionError: .*box.py, line \d+\)\)$",
        ),
        ({"backend": "elsewere"}, r"there is no sandbox 'elsewere'.*elsewhere.*or name an installed sandbox$"),
        *(
            (
                {"backend": "unwalled", "level": level},
                "'unwalled' cannot be used: its level is None, and .* must set a .*Level$",
            )
            for level in ("auto", "remote")
        ),
        ({"backend": "fenced"}, "'fenced' cannot be used: its level is 'fence', and its constructor must set a .*Level$"),
    ],
)
def test_what_a_sandbox_cannot_give_is_refused(options: dict, words: str) -> None:
    options = {**options, "backend_options": {"where": "there", **options.get("backend_options", {})}}
    if options["backend"] == "plain":
        options["backend_options"] = {}
    with pytest.raises(SandboxError, match=words):
        open_sandbox(SandboxOptions(**options))


def test_without_its_plugin_local_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Registry, "discover", lambda: Registry([]))
    with pytest.raises(SandboxError, match=r"^sandbox 'local' is not installed: pip install .*sandbox.* \(installed: none\)$"):
        open_sandbox()


class Inner(BaseModel):
    box: SandboxOptions


class Outer(BaseModel):
    inner: Inner
    many: tuple[SandboxOptions, ...]
    named: dict[str, SandboxOptions]
    plain: int = 3


def test_sandboxes_are_found_at_any_depth() -> None:
    one, two, three = (SandboxOptions(backend=name) for name in "abc")
    options = Outer(inner=Inner(box=one), many=(two,), named={"x": three})
    assert list(sandboxes.sandboxes_in(options)) == [("inner.box", one), ("many.0", two), ("named.x", three)]
    assert list(sandboxes.sandboxes_in(None)) == []


WORKER = """
import pickle, sys
from rlcore.api.sandbox import SandboxOptions, open_sandbox
from rlcore.registry.sandboxes import load_sandboxes
load_sandboxes(pickle.loads(sys.stdin.buffer.read()))
print(open_sandbox(SandboxOptions(backend=sys.argv[1], backend_options={"where": "there"})).describe())
"""


@pytest.mark.parametrize("name", ["./box.py:Remote", "mine"])
def test_a_class_that_a_worker_could_not_find_is_brought_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("box.py").write_text(REMOTE)
    registry = Registry.discover()
    if name == "mine":
        space: dict = {"__name__": "__main__"}
        exec(REMOTE, space)
        registry.add("sandbox", space["Remote"], name="mine")
    shipped = sandboxes.bundle_sandboxes(SandboxOptions(backend=name), registry)
    Path("box.py").unlink()
    said = subprocess.run([sys.executable, "-c", WORKER, name], input=pickle.dumps(shipped), capture_output=True)
    assert said.stdout == b"remote (there, asked for auto)\n", said.stderr.decode()


def test_a_worker_that_finds_another_sandbox_refuses(elsewhere: PluginFolder) -> None:
    shipped = sandboxes.bundle_sandboxes([SandboxOptions(backend="elsewhere")] * 2, elsewhere.discover())
    assert len(shipped) == 1
    sandboxes.load_sandboxes(shipped)
    elsewhere.install("elsewhere", PLUGIN, version="2.0", files={"box.py": REMOTE + PLAIN})
    (elsewhere.root / "rlcore_plugin_elsewhere-1.0.dist-info" / "METADATA").unlink()
    (elsewhere.root / "rlcore_plugin_elsewhere-1.0.dist-info" / "entry_points.txt").unlink()
    with pytest.raises(PluginError, match=r"sandbox 'elsewhere' differs between processes: version is '1.0' in the driver and '2.0' here"):
        sandboxes.load_sandboxes(shipped)
