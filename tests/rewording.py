"""Rewords what the scripts of `batchtrain/runtime` print, so that a test can show that nothing reads it.

The sentences are found by parsing: in shell, the literals that a command prints, or that a variable holds which is
printed; in Python, all literals except docstrings, patterns of `re` and what something is compared with. A literal is a
sentence if it has two words in a row: what the scripts print for one another has one word and fields. The beginning of
a line that ends with a colon (`batchtrain:`, `preflight:`) is a tag, and stays.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

SENTENCE = re.compile(r"(?<![\\%{\w])[A-Za-z]{2,} [a-z]{2,}")
WORD = re.compile(r"(?<![\\%{\w])[A-Za-z]{2,}(?![\w:}=])")
PRINTING = frozenset({b"echo", b"printf"})
PARSER = Parser(Language(tree_sitter_bash.language()))


def reworded(text: str) -> str:
    """The same text with every word spelled backwards."""
    return WORD.sub(lambda match: match[0][::-1], text) if SENTENCE.search(text) else text


def reword_package(folder: Path) -> int:
    """Reword all files of a folder; returns the number of sentences."""
    shells = {path: path.read_bytes() for path in folder.rglob("*.sh")}
    printing = printing_functions(PARSER.parse(text).root_node for text in shells.values())
    count = 0
    for path, text in shells.items():
        new, sentences = reword_shell(text, printing)
        path.write_bytes(new)
        count += sentences
    for path in folder.rglob("*.py"):
        rewording = Python(printing)
        path.write_text(ast.unparse(rewording.visit(ast.parse(path.read_text()))) + "\n")
        count += rewording.sentences
    return count


# --- shell ----------------------------------------------------------------------------------------------------------


def reword_shell(text: bytes, printing: frozenset[bytes]) -> tuple[bytes, int]:
    """The text with reworded sentences, and their number. printing: the commands that print their arguments."""
    root, changes = PARSER.parse(text).root_node, dict[tuple[int, int], bytes]()
    for node in printed(root, printing):
        new = reworded(node.text.decode()) if node.text else ""
        if new.encode() != node.text:
            changes[node.start_byte, node.end_byte] = new.encode()
    for (start, end), new_text in sorted(changes.items(), reverse=True):
        text = text[:start] + new_text + text[end:]
    return text, len(changes)


def printed(root: Node, printing: frozenset[bytes]) -> Iterator[Node]:
    """The literals that are printed, or held by a variable that is printed."""
    arguments = [argument for command in commands(root, printing) for argument in command.children[1:]]
    names = {node.text for argument in arguments for node in below(argument) if node.type == "variable_name"}
    for argument in arguments:
        yield from literals(argument)
    for node in below(root):
        if node.type == "variable_assignment" and node.children[0].text in names:
            yield from literals(node.children[-1])


def commands(root: Node, names: frozenset[bytes]) -> Iterator[Node]:
    """The calls of these commands. `printf -v` prints nothing."""
    for node in below(root):
        name = node.child_by_field_name("name") if node.type == "command" else None
        if name and name.text in names and all(child.text != b"-v" for child in node.children):
            yield node


def printing_functions(roots: Iterable[Node]) -> frozenset[bytes]:
    """echo, printf, and the functions that pass their parameters on to one of these."""
    functions = [node for root in roots for node in below(root) if node.type == "function_definition"]
    found, before = PRINTING, frozenset[bytes]()
    while found != before:
        before = found
        found |= {function.children[0].text or b"" for function in functions if passes_on(function, found)}
    return found


def passes_on(function: Node, printing: frozenset[bytes]) -> bool:
    expansions = (
        node for command in commands(function, printing) for node in below(command) if "expansion" in node.type
    )
    return any(re.fullmatch(rb"\$\{?[*@\d].*", expansion.text or b"") for expansion in expansions)


def literals(node: Node) -> Iterator[Node]:
    """What a command in it prints is no literal of it."""
    if node.type in ("string_content", "raw_string"):
        yield node
    elif node.type != "command_substitution":
        for child in node.children:
            yield from literals(child)


def below(node: Node) -> Iterator[Node]:
    """The node and everything in it."""
    yield node
    for child in node.children:
        yield from below(child)


# --- Python ---------------------------------------------------------------------------------------------------------


class Python(ast.NodeTransformer):
    """Rewords the literals of a module, also those in the shell text that it makes."""

    def __init__(self, printing: frozenset[bytes]) -> None:
        self.printing, self.sentences = printing, 0

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if isinstance(node.value, str) and not is_python(node.value):
            text, count = node.value, 0
            if "\n" in text.strip():
                new, count = reword_shell(text.encode(), self.printing)
                text = new.decode()
            elif SENTENCE.search(text):
                text, count = reworded(text), 1
            self.sentences += count
            node.value = text
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.Compare:
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        of_re = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == "re"
        return node if of_re else self.generic_visit(node)


def is_python(text: str) -> bool:
    """Whether a text is a program for `python -c`, or an annotation."""
    try:
        compile(text, "text", "exec")
    except (SyntaxError, ValueError):
        return False
    return True
