"""Layer 2, what attention was invented for: a translator trained on your own parallel text.

The road, in reading order: `corpus` -> `tokenizer` -> `batches` -> `encoders` -> `decoding` -> `forcing` ->
`focus` -> `decoders` -> `positions` -> `transformer_layers` -> `transformer` -> `architectures` -> `model` ->
`prefixes` -> `trace` -> `hypotheses` -> `search` -> `sampling` -> `ensemble` -> `scoring` -> `translations`
-> `translator`; and around it `recipe`, `data`, `losses`, `training`, `starting`, `runs`, `locks`, `folders`,
`alignment`, `evaluation`, `progress`.
"""
