"""People's files to pairs of texts.

`raw_files` finds or downloads files by name. `lines` reads one file, `parallel`
the two sides of a corpus. `filters` and `held_out` choose pairs, `mixture`
combines corpora.
"""
