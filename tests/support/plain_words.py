"""Check comments, strings and docs for words that plain English avoids.

`make lint` runs it. CONTRIBUTING.md has the rules.
"""

import ast
import pathlib
import re
import sys
import tokenize

ROOT = pathlib.Path(__file__).parents[2]
# A docstring must not begin with a clause.
OPENINGS = re.compile(
    r"(What|Those|That|Where|How|Who|Which|Of|As|Such|Likewise)\b"
)
PHRASES = re.compile(
    r"\b(goes on|went on|anew|at once|likewise|behind|beside|is told|are told|"
    r"is asked|are asked|as it were)\b"
)


def texts_of(file):
    """Yield the line and the text of each comment and string."""
    with tokenize.open(file) as lines:
        for token in tokenize.generate_tokens(lines.readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                yield token.start[0], token.string


def main():
    """Print each place; return 1 if there is one."""
    folders = ("t2t_lite", "bin", "problems", "hparams", "examples")
    folders += ("benchmarks", "tests")
    code = {f for folder in folders for f in (ROOT / folder).rglob("*.py")}
    found = []
    for file in (ROOT / "README.md", *ROOT.glob("docs/*.md")):
        for line, text in enumerate(file.read_text("utf-8").splitlines(), 1):
            found += [(file, line, word) for word in PHRASES.findall(text)]
    for file in sorted(code - {pathlib.Path(__file__).resolve()}):
        for line, text in texts_of(file):
            found += [(file, line, word) for word in PHRASES.findall(text)]
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            kinds = (ast.FunctionDef, ast.ClassDef, ast.Module)
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                if word := OPENINGS.match(text):
                    found.append((file, getattr(node, "lineno", 1), word[0]))
    for file, line, word in found:
        print(f"{file.relative_to(ROOT)}:{line}: avoid {word!r}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
