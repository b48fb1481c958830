"""What every endpoint shares: who is asking, and how a change is answered."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from policy.active import Caller, confirm
from policy.offsets import changing


class Endpoint(APIView):
    """One path of the interface: a method for each verb, each of which decodes, calls one use case and answers."""

    def dispatch(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        response = super().dispatch(request, *args, **kwargs)
        # Request, view and response know one another. Out of that circle, what was large is gone with its request, and
        # does not wait for a collection.
        self.request.parser_context.clear()
        if isinstance(response, Response):
            response.render()
            response.renderer_context.clear()  # type: ignore[attr-defined]  # which the view has given it
        return response


def caller(request: Request) -> Caller:
    """Whose request it is, checked against the database now."""
    who = unconfirmed_caller(request)
    return who if who.confirmed else confirm(who)


def unconfirmed_caller(request: Request) -> Caller:
    """Whose request it seems to be: for statements that check the key (`key_check`), and no others."""
    assert isinstance(request.auth, Caller), "only who has a key comes so far"
    return request.auth


@contextmanager
def writing(request: Request) -> Iterator[Caller]:
    """A transaction in which the caller's key holds."""
    with changing():
        yield confirm(unconfirmed_caller(request))


def changed(message: str, offset: int) -> Response:
    """The answer to a change that is committed."""
    return Response({"message": message}, headers={"OsoOffset": str(offset)})
