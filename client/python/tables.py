# SPDX-License-Identifier: MIT
"""Makes the header with the extension's docstrings and tables of its stub: tables.py core.pyi.in.

DOC_Watch is the text of a class, DOC_Watch_next that of a method or an attribute, and DOC_module_pending_cleanup that
of a function. The signature comes first, as CPython reads it for __text_signature__.

SLOTS_Watch are the slots of a type that has this text, and methods and attributes as the stub has them. Watch_next() is
the function in C of Watch.next(), whose arguments have the names in ARGS_Watch_next; Watch_closed() reads the attribute
`closed`, and Frame_set_meta() sets `meta`, which is not Final. METHODS_module are the rows of the module's own
functions, and METHODS_common those of the methods of Connection that are functions of the module, too.
"""

import ast
import inspect
import json
import sys
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path


def define(name: str, parts: Iterable[str], between: str = "") -> None:
    """Prints a macro."""
    print(f"#define {name} \\\n\t" + f"{between} \\\n\t".join(parts))


def document(name: str, text: str) -> None:
    """Prints a text."""
    define(f"DOC_{name}", map(json.dumps, text.splitlines(keepends=True) or [""]))


def signature(function: ast.FunctionDef, me: str) -> str:
    """'next($self, timeout=None)', without annotations. me: what the function is called on."""
    given = function.args
    for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
        if argument:
            argument.annotation = None
    words = ast.unparse(given).removeprefix("self").removeprefix(", ")
    return f"{function.name}(${me}, {words or '/'})\n--\n\n"


def flags(function: ast.FunctionDef, is_method: bool) -> str:
    """How Python gives it the arguments, where the type of the function in C does not say."""
    given = function.args
    names, others = [*given.posonlyargs, *given.args][is_method:], given.vararg or given.kwonlyargs or given.defaults
    if not (names or others):
        return "METH_NOARGS"
    return "METH_O" if len(names) == 1 and names == given.posonlyargs[-1:] and not others else "METH_VARARGS"


def keywords(function: ast.FunctionDef, is_method: bool) -> str:
    """A struct args_signature of the arguments that can be given by their names."""
    given = function.args
    positional = given.args[is_method and not given.posonlyargs :]
    names = ", ".join([*(f'"{one.arg}"' for one in (*positional, *given.kwonlyargs)), "NULL"])
    counts = f"{len(positional)}, {len(positional) - len(given.defaults)}"
    return f'(const struct args_signature){{ "{function.name}", (const char *const[]){{ {names} }}, {counts} }}'


def methods(owner: str, body: list[ast.stmt]) -> dict[str, str]:
    """Rows by the names of functions, or of a class's methods; prints the texts."""
    found, is_method = {}, owner != "module"
    for one in body:
        said = ast.get_docstring(one) if isinstance(one, ast.FunctionDef) else None
        # The text of most of Python's own names is Python's, and they have slots.
        if said or (isinstance(one, ast.FunctionDef) and not (one.name.startswith("__") or one.decorator_list)):
            call = f"{owner}_{one.name.strip('_')}"
            document(call, signature(one, "self" if is_method else "module") + (said or ""))
            define(f"ARGS_{call}", [keywords(one, is_method)])
            found[one.name] = f'METHOD("{one.name}", {call}, {flags(one, is_method)}, DOC_{call})'
    return found


def getters(owner: str, body: list[ast.stmt]) -> list[str]:
    """Rows of a class's attributes; prints the texts, which come behind them."""
    found = []
    for one, after in zip_longest(body, body[1:]):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            name = one.target.id
            call = f"{owner}_{name.strip('_')}"
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            document(call, inspect.cleandoc(after.value.value) if is_text else "")
            setter = "NULL" if ast.unparse(one.annotation).startswith("Final") else f"{owner}_set_{name}"
            found.append(f'{{ "{name}", {call}, {setter}, DOC_{call}, NULL }}')
    return found


def slot(name: str, kind: str, rows: Iterable[str]) -> str:
    """That of a table."""
    return f"{{ {name}, ({kind}[]){{ {', '.join([*rows, '{ 0 }'])} }} }}"


def main(stub: str) -> None:
    """Prints the header."""
    body = ast.parse(Path(stub).read_text().replace("@records@", "")).body
    print(f"/* Made of {stub}. */")
    rows: dict[str, dict[str, str]] = {}  # of each class
    for cls in (one for one in body if isinstance(one, ast.ClassDef)):
        name = cls.name.strip("_")
        new = next((f for f in cls.body if isinstance(f, ast.FunctionDef) and f.name == "__new__"), None)
        said = f"{name}({ast.unparse(new.args).partition(', ')[2]})\n--\n\n" if new else ""
        document(name, said + (ast.get_docstring(cls) or ""))
        rows[cls.name] = methods(name, cls.body)
        # No type of C's is _Closing.
        inherited = rows["_Closing"] if "_Closing" in map(ast.unparse, cls.bases) else {}
        text = f"{{ Py_tp_doc, (void *)DOC_{name} }}"
        calls = slot("Py_tp_methods", "PyMethodDef", (inherited | rows[cls.name]).values())
        reads = slot("Py_tp_getset", "PyGetSetDef", getters(name, cls.body))
        define(f"SLOTS_{name}", [text, calls, reads], ",")
    define("METHODS_module", methods("module", body).values(), ",")
    functions = {one.targets[0].id for one in body if isinstance(one, ast.Assign)}
    define("METHODS_common", (row for name, row in rows["Connection"].items() if name in functions), ",")


if __name__ == "__main__":
    main(sys.argv[1])
