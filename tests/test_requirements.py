"""The page of requirements: one row for each, naming tests that exist, and no numbered test left out."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "requirements.md"
ROW = re.compile(r"^\| ([ST]\d+) \|.*\|([^|]*)\|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
DOCUMENT = re.compile(r"`(docs/[\w-]+\.md)`")
NUMBER = re.compile(r"_(s|trap)(\d+)(?=_|$)")
LETTERS = {"s": "S", "trap": "T"}
PLANNED = re.compile(r"planned(: [^`]+)?")


def rows() -> list[tuple[str, list[str]]]:
    """Each row's id and what shows it: tests, pages of the documentation, what is planned."""
    found = ROW.findall(PAGE.read_text(encoding="utf-8"))
    return [(name, shown.strip().split("<br>")) for name, shown in found]


def cited() -> set[tuple[str, str, str]]:
    """Each (id, file, function) of the page."""
    return {
        (name, match[1], match[2])
        for name, shown in rows()
        for part in shown
        if (match := TEST.fullmatch(part))
    }


def functions(path: Path) -> set[str]:
    """The test functions of a file, read without importing it."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_requirement_and_trap_has_one_row_in_order() -> None:
    expected = [f"S{n}" for n in range(1, 99)] + [f"T{n}" for n in range(1, 9)]
    assert [name for name, _ in rows()] == expected


def test_each_row_names_tests_or_pages_or_says_planned() -> None:
    patterns = (TEST, DOCUMENT, PLANNED)
    wrong = [
        (name, part)
        for name, shown in rows()
        for part in shown
        if not any(pattern.fullmatch(part) for pattern in patterns)
    ]
    assert wrong == []


def test_what_the_rows_name_exists() -> None:
    files = {file for _, file, _ in cited()}
    there = {file: functions(ROOT / file) if (ROOT / file).is_file() else set() for file in files}
    assert sorted(row for row in cited() if row[2] not in there[row[1]]) == []
    pages = {match[1] for _, shown in rows() for part in shown if (match := DOCUMENT.fullmatch(part))}
    assert sorted(page for page in pages if not (ROOT / page).is_file()) == []


def test_every_test_that_bears_a_number_is_named_in_its_row() -> None:
    numbered = {
        (f"{LETTERS[kind]}{number}", path.relative_to(ROOT).as_posix(), function)
        for path in (ROOT / "tests").rglob("test_*.py")
        for function in functions(path)
        for kind, number in NUMBER.findall(function)
    }
    assert len(numbered) > 0
    assert sorted(numbered - cited()) == []
