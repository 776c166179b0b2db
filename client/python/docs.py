# SPDX-License-Identifier: MIT
"""Makes the header with the extension's docstrings of its stub: docs.py core.pyi.in.

DOC_Watch is the text of a class, DOC_Watch_next that of a method or an attribute, and DOC_pending_cleanup that of a
function. The signature comes first, as CPython reads it for __text_signature__.
"""

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path


def signature(function: ast.FunctionDef, me: str) -> str:
    """'next($self, timeout=None)', without annotations. me: what the function is called on."""
    given = function.args
    for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
        if argument:
            argument.annotation = None
    words = ast.unparse(given).removeprefix("self").removeprefix(", ")
    return f"{function.name}(${me}, {words or '/'})\n--\n\n"


def documented(body: list[ast.stmt], me: str) -> Iterator[tuple[str, str]]:
    """Names of a module or a class, and their texts."""
    for at, one in enumerate(body):
        if isinstance(one, ast.FunctionDef):
            said = ast.get_docstring(one)
            # The text of most of Python's own names is Python's.
            if said or not (one.name.startswith("__") or one.decorator_list):
                yield one.name, signature(one, me) + (said or "")
        elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and body[at + 1 :]:
            after = body[at + 1]
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                yield one.target.id, inspect.cleandoc(after.value.value)
        elif isinstance(one, ast.ClassDef):
            new = next((f for f in one.body if isinstance(f, ast.FunctionDef) and f.name == "__new__"), None)
            said = f"{one.name}({ast.unparse(new.args).partition(', ')[2]})\n--\n\n" if new else ""
            yield one.name, said + (ast.get_docstring(one) or "")
            for name, text in documented(one.body, "self"):
                yield f"{one.name}_{name.strip('_')}", text


def main(stub: str) -> None:
    """Prints the header."""
    source = Path(stub).read_text().replace("@records@", "")
    print(f"/* Made of {stub}. */")
    for name, text in documented(ast.parse(source).body, "module"):
        lines = " \\\n\t".join(json.dumps(line) for line in text.splitlines(keepends=True))
        print(f"#define DOC_{name.strip('_')} \\\n\t{lines or json.dumps('')}")


if __name__ == "__main__":
    main(sys.argv[1])
