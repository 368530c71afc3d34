"""A model in a browser: the page of a server, and the one of attention."""
