"""The one way to refuse a request."""


class BadRequest(ValueError):  # noqa: N818 - named after the HTTP status it becomes
    """The body cannot be served. Becomes HTTP 400, or `status`."""

    def __init__(self, message: str, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.param = param
        self.status = status
