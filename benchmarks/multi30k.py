r"""The score that papers report on Multi30k, and beside it the one that can be compared across papers.

    python benchmarks/multi30k.py RUN --source DATA/test_2016_flickr.en.gz \
        --target DATA/test_2016_flickr.de.gz

The first: BLEU of lower-cased text with normalised punctuation in Moses tokens, of translation and reference
alike (sacremoses). The second: sacreBLEU of the text as it is, with its signature, and chrF. DATA is a folder
with Multi30k task 1 (Elliott et al. 2016), raw.
"""

import argparse
import time
from collections.abc import Iterable
from pathlib import Path

import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from headlights.translation.corpus import read_lines
from headlights.translation.translator import Translator


def moses(lines: Iterable[str], language: str) -> list[str]:
    """Lines in Moses tokens, punctuation normalised, in lower case."""
    normalise, tokenise = (
        MosesPunctNormalizer(lang=language).normalize,
        MosesTokenizer(lang=language).tokenize,
    )
    return [tokenise(normalise(line).lower(), return_str=True) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="a run or model folder")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--language", default="de", help="of the target, for its tokens")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--length-penalty", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    translator = Translator.load(options.run)
    source, reference = list(read_lines(options.source)), list(read_lines(options.target))
    begun = time.perf_counter()
    found = translator.translate(source, beam=options.beam, length_penalty=options.length_penalty)
    seconds = time.perf_counter() - begun
    text = [translation.text for translation in found]
    tokens, reference_tokens = moses(text, options.language), moses(reference, options.language)
    published = BLEU(tokenize="none", force=True)
    cased, chrf = BLEU(), CHRF()
    print(f"{len(source)} lines in {seconds:.1f} s, beam {options.beam}")
    print(f"lower-cased Moses tokens  BLEU {published.corpus_score(tokens, [reference_tokens]).score:.2f}")
    print(f"text as it is  BLEU {cased.corpus_score(text, [reference]).score:.2f}  {cased.get_signature()}")
    print(f"text as it is  chrF {chrf.corpus_score(text, [reference]).score:.2f}  {chrf.get_signature()}")


if __name__ == "__main__":
    main()
