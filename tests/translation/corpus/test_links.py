"""Word alignments as text."""

from pathlib import Path

import pytest

from headlights.translation.corpus import CorpusError, read_links


def test_sure_and_possible_links_from_either_count(tmp_path: Path) -> None:
    path = tmp_path / "gold"
    path.write_text("1-1 2p3\n\n 10-2\n")
    assert list(read_links(path, first=1)) == [(((0, 0),), ((1, 2),)), ((), ()), (((9, 1),), ())]
    assert next(read_links(path)) == (((1, 1),), ((2, 3),))


@pytest.mark.parametrize("text", ["1-", "a-b", "1:2", "1-2-3", "0-1"])
def test_what_is_no_link_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gold"
    path.write_text(f"1-1\n1-1 {text}\n")
    with pytest.raises(CorpusError, match=f"gold:2: expected links such as 1-1 or 1p1, .* got '{text}'"):
        list(read_links(path, first=1))
