r"""The score that papers report on Multi30k, and beside it the one that can be compared across papers.

    python benchmarks/multi30k.py RUN --source DATA/test_2016_flickr.en.gz \
        --target DATA/test_2016_flickr.de.gz

The first: BLEU of lower-cased text with normalised punctuation in Moses tokens, of translation and reference
alike (sacremoses). The second: sacreBLEU of the text as it is, with its signature, and chrF. DATA is a folder
with Multi30k task 1 (Elliott et al. 2016), raw.

Papers train on lower-cased text. Such a model's translations get their capitals back with `--recase
DATA/train.de.gz`: each word as that text mostly writes it within its sentences, and one to begin with.
"""

import argparse
import re
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from headlights.translation.corpus import read_lines
from headlights.translation.side_by_side import fitting_workers
from headlights.translation.translator import Translator

_WORD = re.compile(r"\w+")


def moses(lines: Iterable[str], language: str) -> list[str]:
    """Lines in Moses tokens, punctuation normalised, in lower case."""
    normalise, tokenise = (
        MosesPunctNormalizer(lang=language).normalize,
        MosesTokenizer(lang=language).tokenize,
    )
    return [tokenise(normalise(line).lower(), return_str=True) for line in lines]


class Recaser:
    """Gives lower-cased text its capitals back, as a text writes its words.

    Args:
        lines: That text, a sentence each.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        within, first = Counter[str](), Counter[str]()
        for line in lines:
            start, *others = _WORD.findall(line) or [""]
            first[start] += 1
            within.update(others)
        counts = first + within
        # The most frequent form comes last and stays. What begins a sentence tells little, if there is more.
        order = sorted(counts, key=lambda word: (within[word], first[word]))
        self._forms = {word.lower(): word for word in order}

    def __call__(self, line: str) -> str:
        """A line with capitals."""
        cased = _WORD.sub(lambda word: self._forms.get(word[0], word[0]), line)
        return cased[:1].upper() + cased[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="a run or model folder")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--language", default="de", help="of the target, for its tokens")
    parser.add_argument("--recase", type=Path, help="text in the target language whose capitals to use")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--length-penalty", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    translator = Translator.load(options.run)
    source, reference = list(read_lines(options.source)), list(read_lines(options.target))
    begun = time.perf_counter()
    found = translator.translate(
        source,
        beam=options.beam,
        length_penalty=options.length_penalty,
        workers=fitting_workers(translator.device),
    )
    seconds = time.perf_counter() - begun
    text = [translation.text for translation in found]
    if options.recase is not None:
        text = list(map(Recaser(read_lines(options.recase)), text))
    tokens, reference_tokens = moses(text, options.language), moses(reference, options.language)
    published = BLEU(tokenize="none", force=True)
    cased, chrf = BLEU(), CHRF()
    print(f"{len(source)} lines in {seconds:.1f} s, beam {options.beam}")
    print(f"lower-cased Moses tokens  BLEU {published.corpus_score(tokens, [reference_tokens]).score:.2f}")
    kind = "text as it is" if options.recase is None else "text with capitals"
    print(f"{kind}  BLEU {cased.corpus_score(text, [reference]).score:.2f}  {cased.get_signature()}")
    print(f"{kind}  chrF {chrf.corpus_score(text, [reference]).score:.2f}  {chrf.get_signature()}")


if __name__ == "__main__":
    main()
