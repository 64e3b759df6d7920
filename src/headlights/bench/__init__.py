"""Side-by-side measurements: time and memory of attention, ours and its peers', in one run.

`cases` says what is compared and what is to be reached, `layers`, `attends` and `additive` hold the contestants,
`running` measures them, `sweep` lets N grow, `crossover` finds where `auto` should switch, `report` and `plots`
show what came out. The command `headlights bench` and `benchmarks/attention.py` are its users.
"""
