import errno
import gzip
import io
import json
import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headlights.translation.corpus import (
    CorpusError,
    NonBlank,
    Pair,
    is_blank,
    numbered_lines,
    read,
    read_jsonl,
    read_lines,
    read_parallel,
    read_tsv,
    write_jsonl,
    write_parallel,
)
from headlights.translation.corpus.reading import has_blank_side

LOOK_LIKE_ENDS = "a\u2028b\u2029c\u0085d\fe\vf\x1cg\x1dh\x1ei\rj"
same_folder = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str, bytes], Path]:
    def write(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


File = Callable[[str, bytes], Path]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(b"", [], id="empty"),
        pytest.param(b"\n", [""], id="one blank line"),
        pytest.param(b"a\nb\n", ["a", "b"], id="line feeds"),
        pytest.param(b"a\nb", ["a", "b"], id="no last line feed"),
        pytest.param(b"a\r\n\r\nb\r\n", ["a", "", "b"], id="carriage returns"),
        pytest.param(b"a\r\r\nb\r", ["a\r", "b\r"], id="carriage returns that end no line"),
        pytest.param(b"\xef\xbb\xbfa\n\xef\xbb\xbfb", ["a", "\ufeffb"], id="byte-order mark"),
        pytest.param(f"{LOOK_LIKE_ENDS}\nz".encode(), [LOOK_LIKE_ENDS, "z"], id="no line ends"),
    ],
)
def test_only_a_line_feed_ends_a_line(file: File, name: str, content: bytes, expected: list[str]) -> None:
    path = file(name, content)
    assert list(read_lines(path)) == expected
    assert list(read_lines(str(path))) == expected
    assert list(numbered_lines(path)) == list(enumerate(expected, start=1))


def test_lines_of_a_stream_which_stays_open() -> None:
    stream = io.BytesIO(b"\xef\xbb\xbfa\r\n\nb")
    assert list(read_lines(stream)) == ["a", "", "b"]
    assert not stream.closed
    with pytest.raises(TypeError, match=r"<stream>: expected a stream of bytes, got text; give its \.buffer"):
        list(read_lines(io.StringIO("a")))  # type: ignore[arg-type]


def test_errors_of_lines_name_the_place(file: File, tmp_path: Path) -> None:
    broken = file("broken.txt", b"fine\nab\xe9c\n")
    with pytest.raises(CorpusError, match=r"broken\.txt:2: byte 3 of the line, 0xe9, is not UTF-8; convert"):
        list(read_lines(broken))
    with pytest.raises(CorpusError, match=r"^<stream>:1: byte 1 of the line, 0xff, is not UTF-8"):
        list(read_lines(io.BytesIO(b"\xff")))
    with pytest.raises(CorpusError, match=r"none\.txt: cannot be read: No such file or directory$"):
        list(read_lines(tmp_path / "none.txt"))
    with pytest.raises(CorpusError, match=r": cannot be read: Is a directory$"):
        list(read_lines(tmp_path))


def test_a_forbidden_file(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")  # chmod would not stop root

    path = file("secret.txt", b"a")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CorpusError, match=r"secret\.txt: cannot be read: Permission denied$"):
        list(read_lines(path))


def test_broken_compression_is_one_clear_line(tmp_path: Path) -> None:
    whole = gzip.compress(os.urandom(4001).hex().encode() + b"\n" + b"b\n" * 1009)
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    path = tmp_path / "a.gz"
    no_such_block = whole[:10] + b"\xff" * 17
    for content in (whole[:-5], whole[: len(whole) // 2], bytes(flipped), no_such_block, b"not compressed\n"):
        path.write_bytes(content)
        with pytest.raises(
            CorpusError, match=r"a\.gz: the gzip data is broken or cut off after line \d+; copy"
        ):
            list(read_lines(path))


def test_reading_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.txt.gz"
    path.write_bytes(gzip.compress(b"the cat sits on the mat, as it did the day before\n" * 100_003, 1))
    tracemalloc.start()
    count = sum(1 for _ in read_parallel(path, path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 100_003
    assert peak < 2**20  # the text has five million bytes


def test_parallel_files_pair_line_by_line(file: File) -> None:
    source = file("a.txt", f"\ufeffuno\r\n{LOOK_LIKE_ENDS}\r\n\r\ntre".encode())
    target = file("b.txt.gz", b"one\ntwo\n \nthree\n")
    assert list(read([source, target])) == [
        Pair("uno", "one", origin=f"{source}:1"),
        Pair(LOOK_LIKE_ENDS, "two", origin=f"{source}:2"),
        Pair("", " ", origin=f"{source}:3"),
        Pair("tre", "three", origin=f"{source}:4"),
    ]


def test_parallel_files_of_unequal_length_name_both_counts(file: File) -> None:
    short, long = file("short.txt", b"a\nb\nc\n"), file("long.txt", b"a\nb\nc\nd\n\n")
    with pytest.raises(CorpusError, match=r"short\.txt has 3 lines but .*long\.txt has 5; line n"):
        list(read_parallel(short, long))
    with pytest.raises(CorpusError, match=r"long\.txt has 5 lines but .*short\.txt has 3; line n"):
        list(read_parallel(long, short))
    with pytest.raises(CorpusError, match=r"empty\.txt has 0 lines but .*short\.txt has 3; line n"):
        list(read_parallel(file("empty.txt", b""), short))


def test_tsv_keeps_quotation_marks(file: File) -> None:
    path = file("a.tsv", b'"Stop, she said.\tFerma, disse.\r\nIt\'s 5"\t""\n\t"\n')
    assert [(pair.source, pair.target) for pair in read([path])] == [
        ('"Stop, she said.', "Ferma, disse."),
        ("It's 5\"", '""'),
        ("", '"'),
    ]
    assert [pair.origin for pair in read_tsv(path)] == [f"{path}:{n}" for n in (1, 2, 3)]


@pytest.mark.parametrize(("line", "tabs"), [("no tab", 0), ("", 0), ("a\tb\tc", 2), ("a\tb\t", 2)])
def test_tsv_lines_without_exactly_one_tab_are_reported(file: File, line: str, tabs: int) -> None:
    path = file("a.tsv.gz", f"a\tb\n{line}\na\tb\n".encode())
    pairs = read_tsv(path)
    assert next(pairs).target == "b"
    with pytest.raises(CorpusError, match=rf"a\.tsv\.gz:2: expected exactly one tab, .*, got {tabs}$"):
        next(pairs)


def test_jsonl_links_in_every_form(file: File) -> None:
    lines = [
        {"source": "a\u2028b", "target": "c\nd", "id": 7},
        {"source": "a b", "target": "c", "links": [[1, 0], [0, 0]], "possible": "0-0"},
        {"source": "a b", "target": "c", "alignment": "1-0  0-0 "},
        {"source": "a", "target": "c", "links": []},
        {"source": "a", "target": "c", "alignment": ""},
        {"source": "a", "target": "c", "links": None},
    ]
    path = file("a.jsonl", "\n".join(json.dumps(line, ensure_ascii=False) for line in lines).encode())
    assert list(read([path])) == [
        Pair("a\u2028b", "c\nd", None, (), f"{path}:1"),
        Pair("a b", "c", ((1, 0), (0, 0)), ((0, 0),), f"{path}:2"),
        Pair("a b", "c", ((1, 0), (0, 0)), (), f"{path}:3"),
        Pair("a", "c", (), (), f"{path}:4"),
        Pair("a", "c", (), (), f"{path}:5"),
        Pair("a", "c", None, (), f"{path}:6"),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param("{", "is not JSON: Expecting property name .* at column 2", id="cut off"),
        pytest.param("", "is not JSON: Expecting value at column 1", id="blank"),
        pytest.param("[" * 200_000, "is JSON with too long a number or too many brackets", id="deep"),
        pytest.param("1" * 5003, "is JSON with too long a number or too many brackets", id="huge number"),
        pytest.param('["a", "b"]', r'expected an object with source and target, got \["a", "b"\]', id="list"),
        pytest.param(
            '{"source": "a", "tgt": 1}', r"""has no 'target'; its keys are \["source", "tgt"\]""", id="key"
        ),
        pytest.param('{"source": "a", "target": null}', "'target' must be text, got null", id="null"),
        pytest.param('{"source": 5, "target": "b"}', "'source' must be text, got 5", id="number"),
        pytest.param(
            json.dumps({"source": ["x"] * 99, "target": "b"}),
            r"'source' must be text, got \[.{56}\.\.\.$",
            id="long",
        ),
        pytest.param(
            r'{"source": "a\ud800", "target": "b"}', r"'source' holds the lone surrogate '\\ud800'", id="half"
        ),
        pytest.param(
            '{"source": "a", "target": "b", "links": [], "alignment": []}',
            "has both links and alignment",
            id="both",
        ),
        pytest.param(
            '{"source": "a", "target": "b", "links": [[0]]}',
            r"'links' must be like .*, got \[\[0\]\]",
            id="one",
        ),
        pytest.param(
            '{"source": "a", "target": "b", "links": [[0, true]]}', "'links' must be like", id="bool"
        ),
        pytest.param(
            '{"source": "a", "target": "b", "links": [[0, -1]]}', "'links' must be like", id="negative"
        ),
        pytest.param(
            '{"source": "a", "target": "b", "alignment": "0:0"}', "'alignment' must be like", id="colon"
        ),
        pytest.param(
            '{"source": "a", "target": "b", "possible": 3}', "'possible' must be like", id="possible"
        ),
        pytest.param(
            '{"source": "a b", "target": "c", "links": "0-0 2-0"}',
            "link 2-0 is outside the pair, which has 2 source words and 1 target words",
            id="outside",
        ),
        pytest.param(
            '{"source": "a", "target": "c", "possible": "0-1"}', "link 0-1 is outside", id="outside target"
        ),
    ],
)
def test_jsonl_errors_name_the_line(file: File, line: str, reason: str) -> None:
    path = file("a.jsonl", b'{"source": "a", "target": "b"}\n' + line.encode() + b"\n")
    with pytest.raises(CorpusError, match=rf"a\.jsonl:2: {reason}") as caught:
        list(read_jsonl(path))
    assert "\n" not in str(caught.value)


def test_read_chooses_by_name_and_number(file: File) -> None:
    tsv, upper = file("a.tsv", b"a\tb\n"), file("B.TSV", b"c\td\n")
    jsonl = file("a.jsonl.gz", b'{"source": "e", "target": "f"}\n')
    plain = file("a.txt", b"x\ty\n")
    assert [pair.source for pair in read([tsv, upper])] == ["a", "c"]
    assert [pair.source for pair in read([jsonl])] == ["e"]
    assert [pair.source for pair in read([str(plain), plain])] == ["x\ty"]
    assert [pair.source for pair in read([plain], format="tsv")] == ["x"]
    assert [pair.source for pair in read([tsv, tsv], format="parallel")] == ["a\tb"]


def test_read_refuses_what_it_cannot_tell(file: File) -> None:
    with pytest.raises(TypeError, match=r"paths must be a list of files, got one path; give \['a\.tsv'\]"):
        read("a.tsv")
    with pytest.raises(CorpusError, match=r"paths must name at least one file, got none"):
        read([])
    for paths in (["a.txt"], ["a.tsv", "b.txt"], ["a", "b", "c"]):
        with pytest.raises(
            CorpusError, match=rf"cannot tell the format of {', '.join(paths)}: give two text files"
        ):
            read(paths)
    with pytest.raises(CorpusError, match=r"parallel text is two files, source and target, got 1"):
        read(["a.txt"], format="parallel")
    with pytest.raises(CorpusError, match=r"format must be 'parallel', 'tsv' or 'jsonl', got 'csv'"):
        read(["a.txt"], format="csv")  # type: ignore[arg-type]


def test_blank_pairs_are_left_out_and_counted() -> None:
    sides = [("a", "b"), ("", "b"), ("a", " \t"), ("\u00a0", "\u2003\u200b"), (".", "-")]
    assert [has_blank_side(*side) for side in sides] == [False, True, True, True, False]
    pairs = NonBlank(Pair(*side) for side in sides)
    assert [(pair.source, pair.target) for pair in pairs] == [("a", "b"), (".", "-")]
    assert pairs.dropped == 3


@pytest.mark.parametrize("text", ["", " ", "\t \u00a0", "\u202f\u3000", "\u200b", "\x1c\x85"])
def test_blank_texts(text: str) -> None:
    assert is_blank(text)
    assert not is_blank(f"{text}.")


def drawn_pairs() -> st.SearchStrategy[list[Pair]]:
    link = st.just((0, 0))
    return st.lists(
        st.builds(
            Pair,
            st.text().map("a{}".format),
            st.text().map("b{}".format),
            st.none() | st.lists(link, max_size=2).map(tuple),
            st.lists(link, max_size=2).map(tuple),
        )
    )


def without_origin(pairs: Iterator[Pair]) -> list[Pair]:
    return [Pair(pair.source, pair.target, pair.links, pair.possible) for pair in pairs]


@same_folder
@given(pairs=drawn_pairs(), name=st.sampled_from(["a.jsonl", "a.jsonl.gz"]))
def test_jsonl_written_and_read_is_the_same(pairs: list[Pair], name: str, tmp_path: Path) -> None:
    assert write_jsonl(pairs, tmp_path / name) == len(pairs)
    assert without_origin(read_jsonl(tmp_path / name)) == pairs


line_text = st.text(st.characters(exclude_characters="\n\ufeff", exclude_categories=["Cs"])).filter(
    lambda text: not text.endswith("\r")
)


@same_folder
@given(sides=st.lists(st.tuples(line_text, line_text)), end=st.sampled_from(["", ".gz"]))
def test_parallel_written_and_read_is_the_same(
    sides: list[tuple[str, str]], end: str, tmp_path: Path
) -> None:
    source, target = tmp_path / f"a{end}", tmp_path / f"b{end}"
    assert write_parallel([Pair(*side) for side in sides], source, target) == len(sides)
    assert [(pair.source, pair.target) for pair in read([source, target])] == sides


@pytest.mark.parametrize("text", ["a\nb", "a\r", "\ufeffa"])
def test_parallel_files_refuse_what_would_not_come_back(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"b:1: cannot be one line of a text file: .*; write JSON Lines"):
        write_parallel([Pair("a", text)], tmp_path / "a", tmp_path / "b")


def test_compressed_files_are_the_same_every_time(tmp_path: Path) -> None:
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_jsonl([Pair("a", "b")], tmp_path / name)
    content = (tmp_path / "a.jsonl.gz").read_bytes()
    assert content == (tmp_path / "b.jsonl.gz").read_bytes()
    assert content[4:8] == bytes(4)  # the time of writing (RFC 1952, section 2.3)


def test_written_files_are_readable_by_people(tmp_path: Path) -> None:
    write_jsonl([Pair("C'è", "日", ((0, 0),))], tmp_path / "a.jsonl")
    expected = '{"source": "C\'è", "target": "日", "links": [[0, 0]]}\n'
    assert (tmp_path / "a.jsonl").read_bytes() == expected.encode()
