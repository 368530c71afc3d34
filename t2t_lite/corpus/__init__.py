"""People's files to pairs of texts.

`raw_files` finds or downloads files by name; `side_files` finds those of a
split, one for each side. `lines` reads one file, `parallel_lines` two whose
lines belong together, `pair_files` and `tmx` one that holds both sides.
`filters` and `held_out` say which pairs go where, `mixture` how many times.
"""
