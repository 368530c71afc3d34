"""Corpus files to pairs of texts.

`download` finds or downloads files by name. `lines` reads one file, `parallel`
both sides of a corpus. `filters` drops pairs, `splits` holds out dev and test,
`mixture` combines corpora.
"""
