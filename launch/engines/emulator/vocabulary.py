"""Word lists as text: easier to read and to change than a column of quotes."""


def word_list(text: str) -> tuple[str, ...]:
    """The words of a text, in order."""
    return tuple(text.split())
