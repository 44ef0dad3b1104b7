"""One try to send one message, as a program of its own: `python -m controller.notify.post`, a job as JSON on stdin.

What sends is a process because nothing else can be stopped: name resolution has no timeout, a server may send a byte
every nine seconds, and an apprise plugin is foreign code that may hang, leak, or log the URL it was given. The kernel
ends this process at its deadline even where the daemon is not there any more, and with it goes the secret, which it has
read itself and which was neither in argv nor in the environment.

stdin: `{"how", "url", "file", "line", "secret_file", "deadline_s", "title", "text", "type", "body"}`, stdout:
`{"ok", "sentence"}`; the sentence holds no part of a URL. It imports little: on a
busy box that is most of what a try costs.
"""

from __future__ import annotations

import json
import logging
import re
import resource
import signal
import ssl
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .address import APPRISE, apprise_url_of, webhook_url_of
from .secret_files import FileTrouble, secret_of
from .signature import SIGNATURE_HEADER, signature

Job = Mapping[str, Any]
_CODE = re.compile(r"error=(\d{3})\b")
_WRONG_HOST = {62, 64}  # X509_V_ERR_HOSTNAME_MISMATCH and _IP_ADDRESS_MISMATCH, whose messages name the host
_MOST_MEMORY_BYTES = 1 << 30  # a plugin reads an answer whole, and whoever answers may never come to an end


def main() -> int:
    job: Job = json.load(sys.stdin)
    # Its default action ends the process at once, whatever hangs in it; an exception would have to be let through.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, float(job["deadline_s"]))
    _bound_memory()
    out, sys.stdout = sys.stdout, sys.stderr  # what a plugin prints is no answer
    try:
        ok, sentence = _by_apprise(job) if job["how"] == APPRISE else _by_webhook(job)
    except FileTrouble as trouble:
        ok, sentence = False, str(trouble)
    out.write(json.dumps({"ok": ok, "sentence": sentence}))
    return 0


def _bound_memory() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = _MOST_MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(hard, _MOST_MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _by_webhook(job: Job) -> tuple[bool, str]:
    import httpx

    url = webhook_url_of(Path(job["file"])) if job["file"] else str(job["url"])
    body = json.dumps(job["body"], ensure_ascii=False).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "cutover"}
    if job["secret_file"]:
        headers[SIGNATURE_HEADER] = signature(body, secret_of(Path(job["secret_file"])))
    try:
        with (
            httpx.Client(
                trust_env=False,  # no proxy variables, no .netrc
                follow_redirects=False,
                verify=_trusted(),
                timeout=float(job["deadline_s"]),
            ) as client,
            client.stream("POST", url, content=body, headers=headers) as response,
        ):
            status = response.status_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return False, _why(error)
    if 200 <= status < 300:
        return True, f"taken ({status})"
    if 300 <= status < 400:
        return False, f"it redirects ({status}), which is not followed: name the address it leads to"
    return False, f"it answers {status}"


def _trusted() -> ssl.SSLContext:
    """The box's certificate authorities, which may be somebody's own, and those of the wheel."""
    import certifi

    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


def _why(error: BaseException) -> str:
    """What went wrong, without the address that error messages like to quote."""
    import httpx

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, httpx.InvalidURL):
            return "its address is none that can be asked"
        if isinstance(cause, ssl.SSLCertVerificationError):
            said = "it is another host's" if cause.verify_code in _WRONG_HOST else cause.verify_message
            return f"its certificate is not accepted: {said}"
        if isinstance(cause, OSError) and cause.strerror:
            return f"it cannot be reached: {cause.strerror}"
        cause = cause.__cause__ or cause.__context__
    return f"it did not answer as HTTP does ({type(error).__name__})"


def _by_apprise(job: Job) -> tuple[bool, str]:
    import apprise

    asset = apprise.AppriseAsset(async_mode=False, app_id="cutover", storage_mode="memory")
    asset.http_redirects = False
    url = apprise_url_of(Path(job["file"]), int(job["line"]))
    service = apprise.Apprise.instantiate(url, asset=asset)
    if service is None:
        return False, f"URL {job['line']} of {job['file']} is none that apprise knows, or one of its parts is missing"
    name = str(service.service_name)
    with apprise.LogCapture(level=logging.WARNING) as said:  # type: ignore[no-untyped-call]
        taken = service.notify(body=job["text"], title=job["title"], notify_type=job["type"], body_format="text")
        code = _CODE.search(said.getvalue())  # of what plugins log only this cannot be a secret
    if taken:
        return True, f"taken by {name}"
    return False, f"{name} did not take it" + (f" ({code[1]})" if code else "")


if __name__ == "__main__":
    sys.exit(main())
