"""Side-by-side measurements: time and memory of attention, ours and its peers', in one run.

`cases` says what is compared and what is to be reached; `layers`, `attends` and `additive` hold the
contestants; `running` measures them (`timing`, `memory`, `worker`), `sweep` lets N grow, `run` does it all;
`report`, `plots` and `pages` show what came out. `crossover` finds where `attend` should change its path.
"""
