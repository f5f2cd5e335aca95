"""What is answered instead of an answer: the error model of Iceberg's REST specification."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(eq=False)
class RefusedError(Exception):
    """A request that is not answered.

    Attributes:
        status: of HTTP.
        type: the specification's name of what is wrong.
        message: one sentence.
    """

    status: int
    type: str
    message: str

    def to_json(self) -> dict[str, object]:
        """The body of the answer."""
        return {"error": {"message": self.message, "type": self.type, "code": self.status}}


def bad_request(message: str) -> RefusedError:
    """The request is malformed."""
    return RefusedError(400, "BadRequestException", message)


def no_such_namespace(namespace: tuple[str, ...]) -> RefusedError:
    """Nothing is served under that namespace."""
    return RefusedError(404, "NoSuchNamespaceException", f"there is no namespace {'.'.join(namespace)!r:.200}")


def no_such_table(namespace: tuple[str, ...], name: str) -> RefusedError:
    """No table of that name is served."""
    return RefusedError(404, "NoSuchTableException", f"there is no table {'.'.join((*namespace, name))!r:.200}")


def read_only() -> RefusedError:
    """The request would change something."""
    return RefusedError(
        406,
        "UnsupportedOperationException",
        "this catalog only reads: tables are changed by layoutopt's own commands",
    )


def not_authorized() -> RefusedError:
    """The request bears no token, or one that is not known."""
    return RefusedError(401, "NotAuthorizedException", "send a token that this server knows: Bearer TOKEN")


def other_host() -> RefusedError:
    """Without tokens, the request is to another host than this machine."""
    return RefusedError(
        403, "ForbiddenException", "without a token only requests to this machine's own names are answered"
    )


def too_many() -> RefusedError:
    """The server has enough to do."""
    return RefusedError(429, "TooManyRequestsException", "too many requests at once; try again in a second")


def too_slow() -> RefusedError:
    """The body did not come in time."""
    return RefusedError(408, "RequestTimeoutException", "the request's body did not come in time; send it again")


def too_large(most: int) -> RefusedError:
    """The body is longer than the server takes."""
    return RefusedError(413, "RequestEntityTooLargeException", f"the request's body is longer than {most} bytes")
