"""Layer 2, what attention was invented for: a translator trained on your own parallel text.

The road, in reading order: `corpus` -> `tokenizer` -> `batches` -> `encoders` -> `decoding` -> `forcing` ->
`focus` -> `decoders` -> `positions` -> `transformer_layers` -> `transformer` -> `architectures` -> `model` ->
`prefixes` -> `trace` -> `search` -> `sampling` -> `ensemble` -> `translator`; and around it `recipe`, `data`,
`training`, `runs`, `folders`, `alignment`, `evaluation`, `progress`.
"""
