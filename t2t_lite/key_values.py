"""`key=value,key=value`: hparams, options and filters on a command line."""

from t2t_lite.errors import UsageError


def parse_key_values(
    text: str, name: str, bare_keys: bool = False
) -> dict[str, str]:
    """The values by key.

    Example: "beam_size=4, alpha=0.6" gives {"beam_size": "4", "alpha": "0.6"}.

    Args:
      text: keys and values; white space around them does not count.
      name: what the text is called in an error.
      bare_keys: a key may stand alone; its value is then "true".

    Raises:
      UsageError: not of that form, or a key is there twice.
    """
    values: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not key or key in values or not (equals or bare_keys):
            form = "key=value or key" if bare_keys else "key=value"
            raise UsageError(
                f"{name} must be {form}, joined by commas, each key once; got "
                f"{text!r}."
            )
        values[key] = value if equals else "true"
    return values
