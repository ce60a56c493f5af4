"""The commands of a block of shell lines, without the shell's own words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

__all__ = ["simple_commands"]

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*")
_BEFORE = ("sudo", "env", "exec", "time", "do", "then", "else", "if", "while", "!", "srun", "nohup")


def simple_commands(text: str) -> Iterator[list[str]]:
    """Yield program and arguments of each command: joined over ``\\``, split at pipes and operators, without comments, assignments,
    redirections and here-documents."""
    text = re.sub(r"(<<-?\s*(['\"]?)(\w+)\2[^\n]*)\n.*?^\s*\3$", r"\1", text, flags=re.MULTILINE | re.DOTALL)
    for line in text.replace("\\\n", " ").splitlines():
        words: list[str] = []
        for token in _tokens(line):
            if set(token) <= set(";&|()"):
                yield from _command(words)
                words = []
            else:
                words.append(token)
        yield from _command(words)


def _tokens(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()<>")
    lexer.commenters = "#"
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # a quotation that ends in another line
        return line.split()


def _command(words: list[str]) -> Iterator[list[str]]:
    rest: list[str] = []
    skip = False
    for word in words:
        if set(word) <= set("<>&"):
            skip = True
        elif skip:
            skip = False
        else:
            rest.append(word)
    while rest and (_ASSIGNMENT.fullmatch(rest[0]) or rest[0] in _BEFORE):
        rest.pop(0)
    if rest:
        yield rest
