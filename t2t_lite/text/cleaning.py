"""Text without what is no UTF-8."""


def cleaned(text: str | bytes) -> str:
    """Text that UTF-8 can write, as `encoder.clean_utf8` gives it.

    U+FFFD stands for broken bytes, and for each of those of a lone surrogate.
    """
    if isinstance(text, str):
        if text.isascii():
            return text
        text = text.encode("utf-8", "surrogatepass")
    return text.decode("utf-8", "replace")
