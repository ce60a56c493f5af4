"""Where `make mutation` makes no mutations. It needs no cosmic-ray, so that its test runs everywhere."""

from __future__ import annotations

import ast

Place = tuple[tuple[int, int], tuple[int, int]]
"""(line, column) of the first character and of the one behind the last, as parso counts them."""


def silent_places(source: str) -> list[Place]:
    """Where a mutant could not matter: text, annotations, blocks for type checkers, `__all__`, what declares a record frozen."""
    lines = source.splitlines()

    def place(node: ast.AST) -> Place:
        # ast counts bytes, parso characters
        ends = ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))  # type: ignore[attr-defined]
        first, last = ((line, len(lines[line - 1].encode()[:column].decode())) for line, column in ends)
        return first, last

    found: list[ast.AST] = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())) | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                found.append(node)
            case ast.Call(func=ast.Name(id="dataclass" | "ConfigDict")) | ast.Assign(targets=[ast.Name(id="__all__")]):
                found.append(node)
            case ast.arg(annotation=ast.expr() as annotation) | ast.AnnAssign(annotation=annotation):
                found.append(annotation)
            case ast.FunctionDef(returns=ast.expr() as annotation):
                found.append(annotation)
    return [place(node) for node in found]
