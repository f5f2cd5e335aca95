"""What a store or the network refuses: retried, then raised as StoreError.

Damage is bytes that were read and are wrong. Every request to an object store goes through :func:`call_store`, and
every error of a reader of data files through :func:`find_refusal`: no other code looks at a driver's errors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Final, TypeVar

from layoutopt.errors import LayoutoptError, StoreError

Answer = TypeVar("Answer")

# Errors that say something about a file.
_ABOUT_FILES: Final = (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, NotImplementedError)
# How often a request is sent, and the seconds after which it is not repeated: drivers such as s3fs repeat it, too.
_MOST_ATTEMPTS: Final = 5
_PATIENCE: Final = 10.0
_FIRST_WAIT: Final = 0.1

_TRANSIENT: Final = frozenset(
    {
        HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT,
    }
)  # fmt: skip
_TRANSIENT_CODES: Final = frozenset({"InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling"})
# The drivers' classes of errors of a connection; botocore's and aiohttp's are no OSError.
_NETWORK: Final = frozenset(
    {"ClientConnectionError", "ClientPayloadError", "ConnectionError", "HTTPClientError", "IncompleteRead"}
)
_MOST_TEXT: Final = 200


def call_store(send: Callable[[], Answer], name: Callable[[], str]) -> Answer:
    """Return the answer to a request, which is repeated some times where that may help.

    ``name`` returns the path or URL of the file.

    Raises:
        StoreError: the store or the network refused it.
        FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, NotImplementedError: as the driver.
        OSError: the file ends before the requested bytes.
    """
    start = time.monotonic()
    for attempt in range(1, _MOST_ATTEMPTS + 1):
        try:
            return send()
        except (LayoutoptError, *_ABOUT_FILES):
            raise
        except Exception as error:  # drivers raise their libraries' errors, which have no common class
            status = find_status(error)
            if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise OSError("it ends before the bytes that should be there") from error
            is_last = attempt == _MOST_ATTEMPTS or time.monotonic() - start > _PATIENCE
            if is_last or not _is_transient(error):
                raise make_store_error(name(), error) from error
            time.sleep(_FIRST_WAIT * 2 ** (attempt - 1))
    raise AssertionError("the last attempt raises")


def find_refusal(path: str, error: Exception) -> LayoutoptError | None:
    """Return the error of a reader that stands for a refusal; None if the bytes that it read are wrong.

    Arrow keeps the number of a system's error, and layoutopt's own errors; its errors about contents have no number.
    """
    for cause in _list_causes(error):
        if isinstance(cause, StoreError):
            return cause
    if isinstance(error, OSError) and error.errno:
        return make_store_error(path, error)
    return None


def find_status(error: Exception) -> int | None:
    """Return the HTTP status of an object store's answer, None if there was none."""
    return _find_answer(error)[0]


def make_store_error(path: str, error: Exception) -> StoreError:
    """Return the error for a file that the store or disk refused, with the store's code."""
    status, code, message = _find_answer(error)
    text = " ".join((message or getattr(error, "strerror", None) or str(error) or type(error).__name__).split())
    answer = " ".join(dict.fromkeys(str(part) for part in (status, code) if part is not None))
    if status is None and not isinstance(error, OSError):
        answer = type(error).__name__
    cause = f"{answer}: {text}" if answer else text
    return refused_file(path, cause, status, code, is_transient=_is_transient(error))


def refused_file(
    path: str, cause: str, status: int | None = None, code: str | None = None, *, is_transient: bool = False
) -> StoreError:
    """Return the error for a refused file, with the store's own words."""
    if is_transient:
        remedy = "try again once it answers"
    elif "CredentialsError" in cause:
        remedy = "give credentials to each process that uses the store, to Spark's workers too"
    elif status is not None:
        remedy = "check the credentials and permissions, then try again"
    else:
        remedy = "check the connection and the settings of the store, then try again"
    return StoreError(f"the store refused {path!r} ({cause[:_MOST_TEXT]}); {remedy}", path, status, code)


def _is_transient(error: Exception) -> bool:
    status, code, _ = _find_answer(error)
    if status is not None:
        return status in _TRANSIENT or code in _TRANSIENT_CODES
    return _is_of_network(error) or (isinstance(error, OSError) and not isinstance(error, PermissionError))


def _is_of_network(error: BaseException) -> bool:
    return any(kind.__name__ in _NETWORK for kind in type(error).__mro__)


def _find_answer(error: Exception) -> tuple[int | None, str | None, str | None]:
    """Return the HTTP status, the code and the message of an answer, each None if unknown.

    botocore's errors have a ``response``, those of other drivers a ``status`` or ``code``.
    """
    for cause in _list_causes(error):
        if _is_of_network(cause):  # aiohttp's cause has a status that no store sent
            break
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            details = response.get("Error", {})
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return status, details.get("Code"), details.get("Message")
        for name in ("status", "status_code", "code"):
            value = getattr(cause, name, None)
            if isinstance(value, int) and value in HTTPStatus.__members__.values():
                return value, None, getattr(cause, "message", None)
    return None, None, None


def _list_causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
