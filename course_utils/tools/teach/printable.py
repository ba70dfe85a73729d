"""Texts of others, made safe to print and to write: names of files, messages of exceptions."""

__all__ = ["make_printable"]


def make_printable(text: str) -> str:
    """``text`` on one line, with an escape like ``\\x1b`` for each sign that cannot be shown.

    Those are line breaks, what steers a terminal, and bytes of a file's name that are not UTF-8.
    Two different names stay different, unlike with one question mark for all such signs.
    """
    return "".join(sign if sign.isprintable() else _escape(sign) for sign in text)


def _escape(sign: str) -> str:
    if "\udc80" <= sign <= "\udcff":  # Python's stand-in for a byte that is not UTF-8
        return f"\\x{ord(sign) - 0xDC00:02x}"
    return sign.encode("unicode_escape").decode()
