"""The entry of the ``rlcore`` script: exit codes, and where errors go."""

from __future__ import annotations

import json
import signal

import pytest

from rlcore import __version__, cli
from rlcore.contracts.errors import ConfigError, RunError
from tests.commands import command_lines


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in command_lines())


def test_without_a_word_it_helps(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert "usage: rlcore" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize("name", command_lines())
def test_every_command_helps(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([name, "--help"]) == 0
    assert "usage" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("raised", "code"),
    [(ConfigError("two\nlines"), 2), (RunError("it stopped"), 1), (KeyboardInterrupt(), 130)],
    ids=["usage", "run", "ctrl-c"],
)
def test_exit_codes(raised: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(words: list[str]) -> int:
        raise raised

    monkeypatch.setattr(cli, "_run", fail)
    assert cli.main(["train"]) == code
    said = capsys.readouterr()
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_sigterm_has_its_own_exit_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    monkeypatch.setattr(cli, "_run", lambda words: signal.raise_signal(signal.SIGTERM))
    try:
        assert cli.main(["train"]) == 143
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr().err == "error: interrupted\n"


def test_with_json_the_error_is_the_last_line_of_the_output_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--json", "-tbs", "0"]) == 2
    said = capsys.readouterr()
    assert json.loads(said.out.splitlines()[-1])["error"] in said.err


def test_a_defect_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(words: list[str]) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "_run", fail)
    with pytest.raises(ZeroDivisionError):
        cli.main(["train"])


def test_a_sentence_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["no-\x1b[2J-such", "--json"]) == 2
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "no-\\x1b[2J-such" in said.err
