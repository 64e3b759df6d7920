"""What recurrent networks are compared with: their formulas, one vector at a time, in float64."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from headlights import scores
from headlights.translation.decoders import RecurrentDecoder
from headlights.translation.encoders import RecurrentEncoder


class Distance(nn.Module):
    """A score that the library does not have: the nearer, the higher. Its one parameter is a temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.7))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return -self.temperature * torch.cdist(query, key, p=1.0)


def pair_score(score: nn.Module, u: Tensor, v: Tensor) -> Tensor:
    """The score of one query vector and one key vector."""
    match score:
        case scores.Additive():
            return torch.tanh(u @ score.W1 + v @ score.W2) @ score.b
        case scores.Bilinear():
            return u @ score.W @ v
        case scores.Dot():
            return score.scale * (u @ v)
        case scores.ScaledDot():
            return (u @ v) / math.sqrt(len(u))
        case scores.Function(function=Distance() as distance):
            return -distance.temperature * (u - v).abs().sum()
    raise AssertionError(f"no formula for {score}")


class Layers:
    """Recurrent cells one above the other, for one sentence; `hidden[-1]` is the top one's state."""

    def __init__(self, weights: Iterable[Sequence[Tensor]], hidden: Iterable[Tensor]) -> None:
        self.weights, self.hidden = list(weights), list(hidden)
        self.cells = [torch.zeros_like(h) for h in self.hidden]

    def read(self, x: Tensor) -> None:
        for layer, (W, U, b, c) in enumerate(self.weights):
            h = self.hidden[layer]
            given, kept = W @ x + b, U @ h + c
            if len(W) == 3 * len(h):  # GRU: reset, update, new
                r, z = torch.sigmoid((given + kept)[: 2 * len(h)]).chunk(2)
                new = torch.tanh(given[2 * len(h) :] + r * kept[2 * len(h) :])
                x = (1 - z) * new + z * h
            else:  # LSTM: input, forget, cell, output
                i, f, g, o = (given + kept).chunk(4)
                self.cells[layer] = torch.sigmoid(f) * self.cells[layer] + torch.sigmoid(i) * torch.tanh(g)
                x = torch.sigmoid(o) * torch.tanh(self.cells[layer])
            self.hidden[layer] = x


def encode(encoder: RecurrentEncoder, ids: Sequence[int]) -> tuple[Tensor, Tensor]:
    """States (M, E) and final state (E,) of one sentence, read in both directions."""
    inputs = [encoder.embedding.weight[i] for i in ids]
    width = encoder.recurrent.hidden_size
    weights = encoder.recurrent.all_weights  # layer 0 forward, layer 0 backward, layer 1 forward, ...
    for layer in range(encoder.recurrent.num_layers):
        sides = []
        for backward in (False, True):
            cell = Layers([weights[2 * layer + backward]], [torch.zeros(width).double()])
            side = []
            for x in reversed(inputs) if backward else inputs:
                cell.read(x)
                side.append(cell.hidden[0])
            sides.append(side[::-1] if backward else side)
        inputs = [torch.cat(pair) for pair in zip(*sides, strict=True)]
    return torch.stack(inputs), torch.cat([inputs[-1][:width], inputs[0][width:]])


def decode(
    decoder: RecurrentDecoder, ids: Sequence[int], states: Tensor, final: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Logits (T, V) and weights (T, M) of one target sentence over one source without padding."""
    start = torch.tanh(decoder.bridge.weight @ final + decoder.bridge.bias)
    layers = Layers(decoder.recurrent.all_weights, start.chunk(decoder.layers))
    focus = decoder.focus
    pending: Tensor | None = None
    beside = [final] if decoder.final == "every" else []
    fed = torch.zeros_like(decoder.embedding.weight[0])
    logits, rows = [], []

    def look() -> Tensor:
        assert focus is not None
        parts = [torch.exp(pair_score(focus.score, layers.hidden[-1], v)) for v in states]
        row = [part / sum(parts) for part in parts]
        rows.append(torch.stack(row))
        values = [
            v if isinstance(focus.value_proj, nn.Identity) else focus.value_proj.weight @ v for v in states
        ]
        return torch.stack([w * v for w, v in zip(row, values, strict=True)]).sum(0)

    for token in ids:
        x = decoder.embedding.weight[token]
        also = [*beside, fed] if decoder.input_feeding else beside
        shown = []
        if focus is None:
            layers.read(torch.cat([x, *also]))
        elif decoder.query == "previous":
            shown = [look()]
            if decoder.mix == "add":
                layers.hidden[-1] = layers.hidden[-1] + shown[0]
            layers.read(torch.cat([x, *also] if decoder.mix == "add" else [x, shown[0], *also]))
        elif decoder.second is not None:
            layers.read(torch.cat([x, *also]))
            shown = [look()]
            top = Layers(decoder.second.all_weights, layers.hidden[-1:])
            top.cells = layers.cells[-1:]
            top.read(shown[0])
            layers.hidden[-1], layers.cells[-1] = top.hidden[0], top.cells[0]
        else:
            if decoder.mix == "add" and pending is not None:
                layers.hidden[-1] = layers.hidden[-1] + pending
            layers.read(torch.cat([x, *also]))
            pending = look()
            shown = [pending]
        read = torch.cat([layers.hidden[-1], *shown, x])
        deep = fed = torch.tanh(decoder.readout.weight @ read + decoder.readout.bias)
        logits.append(decoder.output.weight @ deep + decoder.output.bias)
    return torch.stack(logits), torch.stack(rows) if rows else None
