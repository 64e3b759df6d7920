"""Decoders write a translation one token at a time, looking at the memory that the encoder left."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from headlights.attention import Score
from headlights.translation.decoding import Decoded, StepByStep, owners
from headlights.translation.dropout import Dropout, WordDropout, dropout
from headlights.translation.encoders import RECURRENT, Cell, Memory, check_choice, init_recurrent
from headlights.translation.focus import Focus, Sources
from headlights.translation.forcing import own_words
from headlights.translation.unrolled import Linear, gru_cell, lstm_cell, once, repeated

Mix = Literal["concat", "add"]
QueryOrder = Literal["previous", "current", "between"]
FinalUse = Literal["first", "every"]


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """Everything a recurrent decoder carries from one step to the next.

    Attributes:
        hidden: Hidden states, float, shape (layers, B, E).
        cell: LSTM cell states of the same shape; None for GRU.
        context: With the current state as query and `mix="add"`: the context to be added before the next
            cell, shape (B, E); None elsewhere.
        sources: What is attended to, of S sentences; None without attention.
        final: The encoder's final state, if it enters every cell, shape (B, E_final); else None.
        fed: With input feeding, what the step before made its logits of, shape (B, E_embed); else None.
        beam: Rows of each sentence, B / S; they stand beside each other and share its keys and values.
    """

    hidden: Tensor
    cell: Tensor | None
    context: Tensor | None
    sources: Sources | None
    final: Tensor | None = None
    fed: Tensor | None = None
    beam: int = 1

    def select(self, indices: Tensor, *, same_sentences: bool = False) -> "RecurrentState":
        """The state of the rows `indices`.

        Args:
            indices: Rows to take, int64, shape (B',); may repeat.
            same_sentences: Promise that every row is replaced by a row of the same source sentence (a beam
                that is sorted anew), so keys and values need no copy.

        Returns:
            A new state; this one is left as it is.
        """
        sources, beam = self.sources, self.beam
        if sources is not None and not same_sentences:
            sentences, beam = owners(indices, self.beam)
            sources = sources.select(sentences)
        context, final, fed = (
            None if rows is None else rows[indices] for rows in (self.context, self.final, self.fed)
        )
        cell = None if self.cell is None else self.cell[:, indices]
        return RecurrentState(self.hidden[:, indices], cell, context, sources, final, fed, beam)


@dataclass(frozen=True, slots=True)
class _Maps:
    """The linear maps of a step.

    Attributes:
        layers: Of the cell of each layer, that of its input and that of its state.
        second: The same of the second cell, if there is one.
        readout: Of what is written.
    """

    layers: list[tuple[Linear, Linear]]
    second: tuple[Linear, Linear] | None
    readout: Linear


class RecurrentDecoder(StepByStep, nn.Module):
    """GRU or LSTM decoder with any attention score, or with none.

    Sources: Bahdanau et al. 2015, arXiv:1409.0473, A.2.2 (`query="previous"`, `mix="concat"`: c_i, made with
    s_{i-1}, enters the cell and the output); Luong et al. 2015, arXiv:1508.04025, 3.1 (`query="current"`,
    `mix="concat"`: c_t, made with h_t, enters the output only). `mix="add"` hands the next cell u + u' in
    place of u, where u is the top layer's state and u' its context; an LSTM's cell state stays as it is.
    `final="every"`: Cho et al. 2014, arXiv:1406.1078, 2.2, where c is beside the input of each cell (S19).
    `input_feeding`: Luong et al. 2015, 3.3; their h~_t is what `project` gets. `query="between"`: Sennrich et
    al. 2017, arXiv:1703.04357, 3, their conditional GRU: a cell reads the token, the state between asks, a
    second cell reads the context.

    Args:
        vocab_size: Number of target tokens.
        embed_dim: Width of the target embedding.
        hidden_dim: Width of the state.
        memory_dim: Width of the encoder states.
        score: How a state is compared with the encoder states: any score, or a callable `(query, key) ->
            scores`. None: no attention at all, the final encoder state is all that the decoder sees.
        cell: "gru" or "lstm".
        layers: Recurrent layers; the top one asks.
        mix: How the context enters: "concat" beside the input or the output, "add" onto the state.
        query: Which state asks for the context of a step: the "previous" one, before the cell, the "current"
            one, or the one "between" the cell and a second cell, which reads the context (`mix="concat"`).
        final: Where the encoder's final state enters: it makes the "first" state, or it does and stands
            beside the input of "every" cell as well.
        input_feeding: Put what a step makes its logits of beside the input of the next one, so that the
            decoder knows where it has looked. Only for attention with `query="current"`, `mix="concat"`.
        final_dim: Width of the encoder's final state. Default: that of the encoder states.
        dropout: Probability of dropping a component of embeddings and outputs, in [0, 1).
        word_dropout: Probability of leaving a token unread in training, in [0, 1).
        pad_id: Token id of padding; its embedding stays zero.

    Raises:
        TypeError: `score` is neither a score nor a callable.
        ValueError: `cell`, `mix`, `query` or `final` is not offered, there is nothing to feed, or no context
            for a second cell.
    """

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        hidden_dim: int,
        memory_dim: int,
        *,
        score: Score | Callable[[Tensor, Tensor], Tensor] | None = None,
        cell: Cell = "gru",
        layers: int = 1,
        mix: Mix = "concat",
        query: QueryOrder = "previous",
        final: FinalUse = "first",
        input_feeding: bool = False,
        final_dim: int | None = None,
        dropout: float = 0.0,
        word_dropout: float = 0.0,
        pad_id: int = 0,
    ) -> None:
        super().__init__()
        check_choice("cell", cell, RECURRENT)
        check_choice("mix", mix, get_args(Mix))
        check_choice("query", query, get_args(QueryOrder))
        check_choice("final", final, get_args(FinalUse))
        if input_feeding and (score is None or (mix, query) != ("concat", "current")):
            raise ValueError(
                "input_feeding needs attention with mix 'concat' and query 'current', got score "
                f"{score}, mix {mix!r} and query {query!r}"
            )
        if query == "between" and (score is None or mix != "concat"):
            raise ValueError(
                f"query 'between' needs attention with mix 'concat', got score {score} and mix {mix!r}"
            )
        self.mix, self.query, self.layers = mix, query, layers
        self.final, self.input_feeding = final, input_feeding
        self.embedding = nn.Embedding(vocab_size, embed_dim, padding_idx=pad_id)
        self.dropout, self.word_dropout = Dropout(dropout), WordDropout(word_dropout)
        final_dim = final_dim or memory_dim
        self.bridge = nn.Linear(final_dim, hidden_dim * layers)
        self.focus: Focus | None = None
        input_dim, output_dim = embed_dim, embed_dim + hidden_dim
        if score is not None:
            self.focus = Focus(score, memory_dim, hidden_dim if mix == "add" else None)
            output_dim += self.focus.output_dim
            if mix == "concat" and query == "previous":
                input_dim += self.focus.output_dim
        input_dim += final_dim * (final == "every") + embed_dim * input_feeding
        self.recurrent = RECURRENT[cell](
            input_dim, hidden_dim, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0
        )
        init_recurrent(self.recurrent)
        self.second: nn.GRU | nn.LSTM | None = None
        if self.focus is not None and query == "between":
            self.second = RECURRENT[cell](self.focus.output_dim, hidden_dim)
            init_recurrent(self.second)
        self.readout = nn.Linear(output_dim, embed_dim)
        self.output = nn.Linear(embed_dim, vocab_size)

    def start(self, memory: Memory) -> RecurrentState:
        """Turn a memory into the state before the first token: tanh of a projection of its final state (S12).

        Args:
            memory: Of B sentences; its keys are prepared here, once for all steps.

        Returns:
            The state, of B rows.
        """
        hidden = torch.tanh(self.bridge(memory.final))  # (B, layers * E)
        hidden = hidden.view(hidden.size(0), self.layers, -1).transpose(0, 1).contiguous()  # (layers, B, E)
        cell = torch.zeros_like(hidden) if isinstance(self.recurrent, nn.LSTM) else None
        sources = None if self.focus is None else self.focus.prepare(memory)
        final = memory.final if self.final == "every" else None
        fed = hidden.new_zeros(hidden.size(1), self.embedding.embedding_dim) if self.input_feeding else None
        return RecurrentState(hidden, cell, None, sources, final, fed)

    def advance(
        self, token_ids: Tensor, state: RecurrentState, *, need_weights: bool = False
    ) -> tuple[Tensor, RecurrentState, Tensor | None]:
        """Read one token per row.

        Args:
            token_ids: The last tokens written, int64, shape (B,); `bos` first.
            state: From `start` or the step before.
            need_weights: Also return where the decoder looked.

        Returns:
            states: What `project` turns into the logits of the next token, float, shape (B, E).
            state: For the next step; the one given is left as it is.
            weights: Float in 0..1, shape (B, L, H, M), or None.
        """
        embedded = self._embed(token_ids)
        maps = self._maps(once)
        output, state, weights = self._go_on(embedded, state, maps, need_weights=need_weights)
        read = self._read_out(output, embedded, maps) if state.fed is None else state.fed
        return read, state, _with_heads(weights)

    def forward(
        self, ids: Tensor, memory: Memory, forcing: Tensor | None = None, *, need_weights: bool = False
    ) -> Decoded:
        """Read whole target sentences, each token forced (S16) or only some (S17).

        Args:
            ids: Target tokens from `bos` on, int64, shape (B, T).
            memory: Of the same sentences.
            forcing: Bool, shape (B, T); where False, the decoder reads what it writes itself. Default: all
                are read as given.
            need_weights: Also return where the decoder looked.

        Returns:
            One state per token, for `project`; the same numbers as step by step.
        """
        if forcing is not None:
            ids = own_words(self, ids, memory, forcing)
        embedded = self._embed(ids)
        state = self.start(memory)
        after_the_cells = self.focus is None or (self.query == "current" and self.mix == "concat")
        if after_the_cells and not self.input_feeding:
            output, weights = self._all_at_once(embedded, state, need_weights=need_weights)
        else:
            output, weights = self._one_by_one(embedded, state, need_weights=need_weights)
        read = output if self.input_feeding else self._read_out(output, embedded, self._maps(once))
        return Decoded(read, _with_heads(weights))

    def project(self, states: Tensor) -> Tensor:
        """Turn states into logits.

        Args:
            states: From `forward`, all or some of them, float, shape (..., E).

        Returns:
            Logits, float, shape (..., V).
        """
        logits: Tensor = self.output(states)
        return logits

    def _embed(self, ids: Tensor) -> Tensor:
        embedded: Tensor = self.dropout(self.word_dropout(self.embedding(ids)))
        return embedded

    def _one_by_one(
        self, embedded: Tensor, state: RecurrentState, *, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        outputs: list[Tensor] = []
        weights: list[Tensor] = []
        maps = self._maps(repeated)
        if state.sources is not None:
            state = replace(state, sources=state.sources.for_many_steps())
        for token in embedded.unbind(1):
            output, state, seen = self._go_on(token, state, maps, need_weights=need_weights)
            outputs.append(output if state.fed is None else state.fed)
            if seen is not None:
                weights.append(seen)
        return torch.stack(outputs, 1), torch.stack(weights, 1) if weights else None

    def _all_at_once(
        self, embedded: Tensor, state: RecurrentState, *, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """All steps in one recurrent and one attention call, where no context enters the cells (S34)."""
        first = state.hidden if state.cell is None else (state.hidden, state.cell)
        if state.final is not None:
            repeated = state.final.unsqueeze(1).expand(-1, embedded.size(1), -1)
            embedded = torch.cat([embedded, repeated], -1)
        hidden, _ = self.recurrent(embedded, first)  # (B, T, E)
        if self.focus is None or state.sources is None:
            return hidden, None
        context, weights = self.focus(hidden, state.sources, need_weights=need_weights)
        return torch.cat([hidden, context], -1), weights

    def _maps(self, linear: Callable[[Tensor, Tensor], Linear]) -> _Maps:
        """The linear maps of a step, each made by `linear` of its weight and bias."""

        def both(weights: Sequence[Tensor]) -> tuple[Linear, Linear]:
            by_input, by_state, input_bias, state_bias = weights
            return linear(by_input, input_bias), linear(by_state, state_bias)

        layers = [both(weights) for weights in self.recurrent.all_weights]
        second = None if self.second is None else both(self.second.all_weights[0])
        return _Maps(layers, second, linear(self.readout.weight, self.readout.bias))

    def _go_on(
        self, embedded: Tensor, state: RecurrentState, maps: _Maps, *, need_weights: bool
    ) -> tuple[Tensor, RecurrentState, Tensor | None]:
        """One step for embedded tokens (B, E): state and context side by side, next state, weights (B, M)."""
        if self.focus is None or state.sources is None:
            state = self._cell(_entering(embedded, state), state, maps)
            return state.hidden[-1], state, None
        if self.query == "previous":
            context, weights = self._look(state, need_weights=need_weights)
            if self.mix == "add":
                state = self._cell(_entering(embedded, state), _added(state, context), maps)
            else:
                state = self._cell(_entering(torch.cat([embedded, context], -1), state), state, maps)
        elif maps.second is not None:
            state = self._cell(_entering(embedded, state), state, maps)
            context, weights = self._look(state, need_weights=need_weights)
            state = self._second_cell(context, state, maps.second)
        else:
            before = state if state.context is None else _added(state, state.context)
            state = self._cell(_entering(embedded, state), before, maps)
            context, weights = self._look(state, need_weights=need_weights)
            if self.mix == "add":
                state = replace(state, context=context)
        output = torch.cat([state.hidden[-1], context], -1)
        if state.fed is not None:
            state = replace(state, fed=self._read_out(output, embedded, maps))
        return output, state, weights

    def _look(self, state: RecurrentState, *, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        assert self.focus is not None
        query = state.hidden[-1].view(-1, state.beam, state.hidden.size(-1))  # (S, beam, E)
        context, weights = self.focus(query, state.sources, need_weights=need_weights)
        return context.flatten(0, 1), None if weights is None else weights.flatten(0, 1)

    def _cell(self, inputs: Tensor, state: RecurrentState, maps: _Maps) -> RecurrentState:
        """All layers for one step: inputs (B, E_in) to the next state."""
        hidden, cell = list(state.hidden), None if state.cell is None else list(state.cell)
        for layer, both in enumerate(maps.layers):
            if layer:
                inputs = dropout(inputs, self.recurrent.dropout, self.training)
            inputs = _read(inputs, hidden, cell, layer, both)
        return _with(state, hidden, cell)

    def _second_cell(
        self, context: Tensor, state: RecurrentState, both: tuple[Linear, Linear]
    ) -> RecurrentState:
        """What the top layer makes of the context (B, E_v) that it has asked for."""
        hidden, cell = list(state.hidden), None if state.cell is None else list(state.cell)
        _read(context, hidden, cell, self.layers - 1, both)
        return _with(state, hidden, cell)

    def _read_out(self, output: Tensor, embedded: Tensor, maps: _Maps) -> Tensor:
        read: Tensor = self.dropout(torch.tanh(maps.readout(torch.cat([output, embedded], -1))))
        return read


def _read(
    inputs: Tensor, hidden: list[Tensor], cell: list[Tensor] | None, layer: int, both: tuple[Linear, Linear]
) -> Tensor:
    """Let a cell read (B, E_in): its new hidden state (B, E), which takes the place of the old one."""
    if cell is None:
        hidden[layer] = gru_cell(inputs, hidden[layer], *both)
    else:
        hidden[layer], cell[layer] = lstm_cell(inputs, hidden[layer], cell[layer], *both)
    return hidden[layer]


def _with(state: RecurrentState, hidden: list[Tensor], cell: list[Tensor] | None) -> RecurrentState:
    return replace(state, hidden=torch.stack(hidden), cell=torch.stack(cell) if cell else None)


def _added(state: RecurrentState, context: Tensor) -> RecurrentState:
    """The state with u + u' in place of u in its top layer."""
    top = state.hidden[-1] + context
    return replace(state, hidden=torch.cat([state.hidden[:-1], top.unsqueeze(0)]))


def _entering(inputs: Tensor, state: RecurrentState) -> Tensor:
    """What a cell reads beside its token and context: the encoder's final state, or what was fed."""
    beside = [rows for rows in (state.final, state.fed) if rows is not None]
    return torch.cat([inputs, *beside], -1) if beside else inputs


def _with_heads(weights: Tensor | None) -> Tensor | None:
    """(..., M) to (..., L, H, M) with L = H = 1, as every decoder returns them."""
    return None if weights is None else weights.unsqueeze(-2).unsqueeze(-2)
