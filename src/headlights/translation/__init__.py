"""Layer 2, what attention was invented for: a translator trained on your own parallel text.

The road, in reading order: `corpus` -> `words` -> `tokenizer` -> `sentences` -> `subwords` -> `batches` ->
`dropout` -> `encoders` -> `decoding` -> `forcing` -> `unrolled` -> `focus` -> `decoders` -> `positions` ->
`transformer_layers` -> `transformer` -> `architectures` -> `losses` -> `model` -> `prefixes` -> `trace` ->
`hypotheses` -> `candidates` -> `search` -> `sampling` -> `ensemble` -> `scoring` -> `alignment` ->
`translations` -> `translator`.

Around it, for training: `recipe`, `prepared`, `data`, `starting`, `rates`, `averaging`, `processes`,
`updates`, `judging`, `progress`, `board`, `locks`, `runs`, `trainer`, `training`; to prepare a corpus: `ids`,
`encoding`, `preparing`; and `folders`, `side_by_side`, `evaluation`, `symmetrisation`, `comparing`.
"""
