"""Error bodies, as each dialect writes them."""

from ..settings import Dialect
from .framing import compact

_LLAMACPP_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    500: "server_error",
}


def error_body(message: str, kind: str, status: int, param: str | None, dialect: Dialect) -> bytes:
    """VLLM wraps an error in `error` as OpenAI does, SGLang does not, llama.cpp and smg have names of their own."""
    match dialect:
        case Dialect.SGLANG:
            return compact({"object": "error", "message": message, "type": kind, "param": param, "code": status})
        case Dialect.LLAMACPP:
            known = _LLAMACPP_KINDS.get(status, "invalid_request_error")
            return compact({"error": {"code": status, "message": message, "type": known}})
        case Dialect.SMG:
            code = "".join("_" + c.lower() if c.isupper() else c for c in kind).strip("_")
            return compact({"error": {"type": kind, "code": code, "message": message, "param": param}})
        case _:
            return compact({"error": {"message": message, "type": kind, "param": param, "code": status}})
