"""The attention of a Hugging Face model over a text, in all layers and heads, as maps to draw."""

import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headlights.cli.common import UsageError, note
from headlights.cli.pretrained import explained, load_pretrained, quiet

if TYPE_CHECKING:
    from headlights.view import AttentionMap
    from headlights.watch import Record

SHORT = 64
"""Up to so many tokens all weights are kept unless asked otherwise."""
TOP = 8
"""Of a longer text, so many of the largest weights of each row."""
MOST_WEIGHTS = 2**26
"""How many weights may be kept whole: 256 MiB of float32."""
PARTS = ("cross", "encoder", "decoder")
"""From where to where an encoder–decoder model looks; the first is shown unless asked otherwise."""

BEAM = 5
"""Hypotheses kept per step unless asked otherwise."""

_CROSS = re.compile("cross|encoder_attn|encdec", re.IGNORECASE)
_TITLE = 80  # characters of a text that its title shows


class Reading(NamedTuple):
    """What to run and what to keep.

    Attributes:
        text: What the model reads; empty if nothing was given.
        target: What the decoder of an encoder–decoder model reads; None: what it generates.
        top: How many of a row's largest weights to keep; 0: all; None: as the text's length suggests.
        truncate: Whether to cut what is too long for the model.
        beam: Hypotheses kept per step while generating; None: 5.
        device: Where to compute; None: a GPU if there is one.
        sentence: Which line of a file of many maps, from 1; None: all.
        threads: Processor threads; None: torch's choice.
    """

    text: str
    target: str | None
    top: int | None
    truncate: bool
    beam: int | None
    device: str | None
    sentence: int | None = None
    threads: int | None = None

    def given(self, *names: str) -> list[str]:
        """Which of these were given, as the user calls them.

        Args:
            *names: Fields.

        Returns:
            Options, in order.
        """
        options = {"text": "TEXT", "top": "--all" if self.top == 0 else "--top"}
        values = {name: getattr(self, name) for name in names}
        left_out = (None, "")  # and False, which equals the 0 of --all
        return [
            options.get(name, f"--{name}")
            for name, value in values.items()
            if value not in left_out and value is not False
        ]


def watch_pretrained(folder: Path, reading: Reading) -> "dict[str, AttentionMap]":
    """Run a model over a text and keep its attention.

    Args:
        folder: A Hugging Face model folder.
        reading: What to run and what to keep.

    Returns:
        One map named "self", or three named by `PARTS`; arrays are (L, H, N, M), or (L, H, N, k) of the
        largest. Rows of "cross" bear the token that the decoder predicts there, all others the token read.

    Raises:
        UsageError: The folder or the text cannot be used; one line says why.
        ImportError: transformers is not installed.
    """
    with quiet():
        model, tokenizer = load_pretrained(folder, reading.device)
        reader = _Reader(folder, model, tokenizer, reading)
        if model.config.is_encoder_decoder:
            return reader.read_pair()
        for option in reading.given("target", "beam"):
            raise UsageError(f"{option}: {folder} is no encoder–decoder model; it reads one text")
        return reader.read_text()


class _Reader:
    """A loaded model with its tokenizer, and what is wanted of it."""

    def __init__(self, folder: Path, model: Any, tokenizer: Any, reading: Reading) -> None:
        self.folder, self.model, self.tokenizer, self.reading = folder, model, tokenizer, reading
        self.takes = inspect.signature(model.forward).parameters
        self.most = _most_tokens(model)

    def read_text(self) -> "dict[str, AttentionMap]":
        """The attention of an encoder or a decoder alone."""
        inputs = self._encode(self.reading.text, "text")
        tokens = self._tokens(inputs["input_ids"])
        record = self._watch(inputs, len(tokens) ** 2, len(tokens))
        return {"self": self._map(record, None, (tokens, tokens), _shorten(self.reading.text))}

    def read_pair(self) -> "dict[str, AttentionMap]":
        """The attention of an encoder and a decoder over a text and its target."""
        import torch

        inputs = self._encode(self.reading.text, "text")
        if self.reading.target is None:
            labels = self._generate(inputs)
        else:
            labels = self._encode(self.reading.target, "target")["input_ids"]
        read = torch.cat([labels.new_tensor([[self._start_id()]]), labels[:, :-1]], 1)
        source, written, seen = map(self._tokens, (inputs["input_ids"], labels, read))
        N, M = len(seen), len(source)
        record = self._watch(inputs | {"decoder_input_ids": read}, N * N + N * M + M * M, max(N, M))
        names = _names_of_parts(record, self.model)
        target = self.tokenizer.decode(labels[0], skip_special_tokens=True)
        title = f"{_shorten(self.reading.text)} → {_shorten(target)}"
        words = {"cross": (source, written), "encoder": (source, source), "decoder": (seen, seen)}
        return {part: self._map(record, names[part], words[part], f"{part}: {title}") for part in PARTS}

    def _encode(self, text: str, name: str, **options: Any) -> dict[str, Any]:
        """Token ids (1, N), and what else the model takes with them."""
        given = {"text" if name == "text" else "text_target": text}
        with explained(self.folder, f"its tokenizer cannot read the {name}"):
            found = self.tokenizer(**given, return_tensors="pt", **options)
        count = found["input_ids"].shape[-1]
        if count == 0:
            raise UsageError(f"{self.folder}: its tokenizer finds no token in the {name}")
        if self.most is not None and count > self.most:
            if not self.reading.truncate:
                raise UsageError(
                    f"the {name} has {count} tokens and {self.folder} takes at most {self.most}; shorten it, "
                    "or cut it with --truncate"
                )
            note(f"the {name} is cut from {count} to {self.most} tokens")
            return self._encode(text, name, truncation=True, max_length=self.most)
        return {key: value.to(self.model.device) for key, value in found.items() if key in self.takes}

    def _generate(self, inputs: dict[str, Any]) -> Any:
        longest = 2 * inputs["input_ids"].shape[-1] + 20
        longest = longest if self.most is None else min(longest, self.most - 1)
        options = {"num_beams": self.reading.beam or BEAM, "do_sample": False, "max_new_tokens": longest}
        with explained(self.folder, "cannot generate; give the target with --target"):
            return self.model.generate(**inputs, **options)[:, 1:]

    def _start_id(self) -> int:
        for config in (self.model.generation_config, self.model.config):
            start = getattr(config, "decoder_start_token_id", None)
            if start is not None:
                return int(start)
        raise UsageError(f"{self.folder}: config.json has no decoder_start_token_id; the decoder needs one")

    def _tokens(self, ids: Any) -> list[str]:
        """Tokens as the tokenizer names them, but as text where it names bytes."""
        from tokenizers.decoders import ByteLevel

        numbers = ids[0].tolist()
        found = self.tokenizer.convert_ids_to_tokens(numbers)
        # A model may have more places than its tokenizer has tokens.
        tokens = [f"#{n}" if token is None else token for n, token in zip(numbers, found, strict=True)]
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if not isinstance(getattr(backend, "decoder", None), ByteLevel):
            return tokens
        texts = [self.tokenizer.convert_tokens_to_string([token]) for token in tokens]
        # A part of a character has no text of its own.
        return [token if "\ufffd" in text else text for token, text in zip(tokens, texts, strict=True)]

    def _watch(self, inputs: dict[str, Any], pairs: int, longest: int) -> "Record":
        """Run the model; `pairs` of tokens have a weight in a layer's heads, `longest` is the longer text."""
        import torch

        from headlights.attention import observations
        from headlights.watch import observe

        top = self.reading.top
        whole = longest <= SHORT if top is None else top == 0
        if whole:
            self._check_size(pairs)
        observation = observations.Weights() if whole else observations.TopWeights(top or TOP)
        if "use_cache" in self.takes:
            inputs = inputs | {"use_cache": False}
        with (
            explained(self.folder, "cannot be watched"),
            torch.no_grad(),
            observe(self.model, observation) as record,
        ):
            self.model(**inputs)
        return record

    def _map(
        self,
        record: "Record",
        modules: Sequence[str] | None,
        words: tuple[Sequence[str], Sequence[str]],
        title: str,
    ) -> "AttentionMap":
        """What was recorded of some modules, or of all, with its source and target words."""
        from headlights import view

        with explained(self.folder, "its attention cannot be drawn"):
            stacked = record.stack(modules)
            if isinstance(stacked, tuple):
                values, indices = stacked
                return view.AttentionMap(*words, values=values, indices=indices, title=title)
            return view.AttentionMap(*words, weights=stacked, title=title)

    def _check_size(self, pairs: int) -> None:
        config = self.model.config
        heads = getattr(config, "num_hidden_layers", 1) * getattr(config, "num_attention_heads", 1)
        if heads * pairs > MOST_WEIGHTS:
            raise UsageError(
                f"--all: {heads} heads have {heads * pairs:,} weights over this text; expected at most "
                f"{MOST_WEIGHTS:,}; keep the largest of each row with --top {TOP}"
            )


def _most_tokens(model: Any) -> int | None:
    """How many positions a model has; None where nothing limits them."""
    most: int | None = getattr(model.config, "max_position_embeddings", None)
    for name, module in model.named_modules():
        padding: int | None = getattr(module, "padding_idx", None)
        if most is not None and padding is not None and name.endswith("position_embeddings"):
            return most - padding - 1  # RoBERTa and its kin count positions from behind the padding
    return most


def _names_of_parts(record: "Record", model: Any) -> Mapping[str, list[str]]:
    inside = set(model.get_encoder().modules())
    encoder = {name for name, module in model.named_modules() if module in inside}
    names: dict[str, list[str]] = {part: [] for part in PARTS}
    for name in record:
        part = "encoder" if name in encoder else "cross" if _CROSS.search(name) else "decoder"
        names[part].append(name)
    return names


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TITLE else line[: _TITLE - 1] + "…"
