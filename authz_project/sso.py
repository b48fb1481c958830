"""Sign-in to the admin by OpenID Connect: the code flow of `mozilla_django_oidc`, and the roles of the user's groups.

Imported only if `OIDC_ISSUER` is set. In addition to the library, this module finds the provider's endpoints by
discovery, checks issuer, audience and subject, and identifies users by issuer and subject: providers let users choose
names and email addresses, so accounts are never found by them.
"""

import logging
import re
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from hashlib import sha256
from typing import Any

import jwt
import requests
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.contrib.auth.models import Group, User
from django.core.exceptions import SuspiciousOperation, ValidationError
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse
from django.utils import timezone
from mozilla_django_oidc.auth import OIDCAuthenticationBackend
from mozilla_django_oidc.views import OIDCAuthenticationCallbackView, OIDCAuthenticationRequestView

from authz_project.limits import count_sign_in, discount_sign_in
from policy.endpoint import public_url_of

log = logging.getLogger("authz.sso")

SESSION_SECONDS = 8 * 3600  # then users sign in again, and get the roles of that time
_TIMEOUT = 10  # seconds
# Settings of the library that are always the same here.
_FIXED = {
    "OIDC_RP_SIGN_ALGO": "RS256",  # all providers support it
    "OIDC_RENEW_ID_TOKEN_EXPIRY_SECONDS": SESSION_SECONDS,
    "OIDC_USE_PKCE": True,
    "OIDC_TIMEOUT": _TIMEOUT,
}
# Names in the provider's configuration by the library's settings.
_DISCOVERED = {
    "OIDC_OP_AUTHORIZATION_ENDPOINT": "authorization_endpoint",
    "OIDC_OP_TOKEN_ENDPOINT": "token_endpoint",
    "OIDC_OP_USER_ENDPOINT": "userinfo_endpoint",
    "OIDC_OP_JWKS_ENDPOINT": "jwks_uri",
}
_FAULTS = (requests.RequestException, jwt.PyJWTError, SuspiciousOperation, LookupError, TypeError, ValueError)
_NAME_CLAIMS = ("preferred_username", "email", "sub")  # the first one that there is names the account
_SECONDS_TO_RETURN = 900  # from the provider
_USERNAME = re.compile(r"[\w.@+-]+")  # as Django has it
_GROUP_CLAIMS = ("groups", "roles")


def _setting(name: str, *default: Any) -> Any:
    """Return a setting of the library: fixed, discovered, from the environment, or its default."""
    if name in _FIXED:
        return _FIXED[name]
    if name in _DISCOVERED:
        return _discovered(settings.OIDC_ISSUER)[_DISCOVERED[name]]
    return getattr(settings, name, *default)


@cache
def _discovered(issuer: str) -> dict[str, str]:
    """Return the provider's configuration. Failures are not cached."""
    answer = requests.get(f"{issuer.rstrip('/')}/.well-known/openid-configuration", timeout=_TIMEOUT)
    answer.raise_for_status()
    found: dict[str, str] = answer.json()
    if found["issuer"] != issuer:
        raise SuspiciousOperation(f"the provider says that its issuer is {found['issuer']}, and OIDC_ISSUER differs")
    return found


class ProviderBackend(OIDCAuthenticationBackend):  # type: ignore[misc]
    """Authenticates the code that the provider sent, and gives the user the roles of the provider's groups."""

    get_settings = staticmethod(_setting)

    def __init__(self) -> None:
        # Django makes one for each request of a user. The library's `__init__` would need the provider each time.
        self.UserModel = get_user_model()

    def authenticate(self, request: HttpRequest | None, **credentials: Any) -> User | None:
        if not credentials.get("nonce"):  # a password, or a request that did not pass the callback's check of the state
            return None
        super().__init__()
        user: User | None = super().authenticate(request, **credentials)
        return user

    def _verify_jws(self, payload: str, key: Any) -> dict[str, Any]:
        """Verify signature, algorithm, times, issuer and audience; the library leaves out the last two."""
        claims: dict[str, Any] = jwt.decode(
            payload, key, algorithms=[self.OIDC_RP_SIGN_ALGO], audience=self.OIDC_RP_CLIENT_ID,
            issuer=settings.OIDC_ISSUER, leeway=60, options={"require": ["exp", "iat", "iss", "aud", "sub"]},
        )  # fmt: skip
        if claims.get("azp", self.OIDC_RP_CLIENT_ID) != self.OIDC_RP_CLIENT_ID:
            raise SuspiciousOperation("the ID token is for another client")
        return claims

    def retrieve_matching_jwk(self, token: str) -> Any:
        """Return the key that the token names, or the only key: the library requires a name."""
        answer = requests.get(self.OIDC_OP_JWKS_ENDPOINT, timeout=_TIMEOUT)
        answer.raise_for_status()
        name = jwt.get_unverified_header(token).get("kid")
        (key,) = (key for key in jwt.PyJWKSet.from_dict(answer.json()).keys if name in (None, key.key_id))
        return key

    def get_or_create_user(self, access_token: str, id_token: str, payload: dict[str, Any]) -> User | None:
        """Return the user of the ID token, with the roles of its groups; None if there are none."""
        about = self.get_userinfo(access_token, id_token, payload)
        if about.get("sub") != payload["sub"]:
            raise SuspiciousOperation("the provider's answer is about another user")
        claims = {**about, **payload}
        mark = _mark(payload["sub"])
        with transaction.atomic():
            user = User.objects.filter(password=mark).first()
            roles = Group.objects.filter(name__in=roles_of(claims))
            if user is None and roles:
                user = _created(mark, claims)
            if user is not None:
                user.is_staff = bool(roles)
                user.save(update_fields=["is_staff"])
                user.groups.set(roles)
        return user if roles else None


def _mark(subject: str) -> str:
    """Return what is stored in place of a password, by which the user is found again.

    As Django's other unusable passwords, none matches it. Setting a password ends the sign-in by the provider.
    """
    return UNUSABLE_PASSWORD_PREFIX + sha256(f"{settings.OIDC_ISSUER}\0{subject}".encode()).hexdigest()


def _created(mark: str, claims: Mapping[str, Any]) -> User:
    named = (str(claims.get(claim, ""))[:150] for claim in _NAME_CLAIMS)
    name = next((text for text in named if _USERNAME.fullmatch(text)), mark[1:])
    try:
        with transaction.atomic():
            return User.objects.create(username=name, email=str(claims.get("email", ""))[:254], password=mark)
    except IntegrityError:
        raise SuspiciousOperation("another account has the user's name. Rename or delete it first") from None


def roles_of(claims: Mapping[str, Any]) -> set[str]:
    """Return the admin's groups that `OIDC_ROLES` gives to the provider's groups in the claims."""
    listed = [claims.get(name) for name in _GROUP_CLAIMS]
    theirs = {group for groups in listed if isinstance(groups, list) for group in groups if isinstance(group, str)}
    return {role for group, role in settings.OIDC_ROLES if group in theirs}


class _Behind:
    """Lets the library make URLs with the public name of the service, which the request has only without a proxy."""

    get_settings = staticmethod(_setting)

    def __init__(self) -> None:
        pass  # the library's needs the provider, which may be down

    def dispatch(self, request: HttpRequest, *args: Any, **options: Any) -> HttpResponse:
        public = public_url_of(request.META)
        request.build_absolute_uri = lambda location=None: f"{public}{location}"  # type: ignore[method-assign]
        try:
            super().__init__()
            answer: HttpResponse = super().dispatch(request, *args, **options)  # type: ignore[misc]
        except _FAULTS as reason:
            log.warning("a sign-in failed: %s", _told(reason))
            return _failed(request)
        return answer


class SignIn(_Behind, OIDCAuthenticationRequestView):  # type: ignore[misc]
    """Sends the browser to the provider. Each time stores a session, so that the number per address is limited."""

    def get(self, request: HttpRequest) -> HttpResponse:
        try:
            count_sign_in(request)
        except ValidationError as reason:
            return _failed(request, str(reason.message))
        if not request.user.is_authenticated:  # a session that is signed in keeps its end
            request.session.set_expiry(_SECONDS_TO_RETURN)
        answer: HttpResponse = super().get(request)
        return answer


class SignInReturn(_Behind, OIDCAuthenticationCallbackView):  # type: ignore[misc]
    """Receives the browser from the provider."""

    def login_success(self) -> HttpResponse:
        answer: HttpResponse = super().login_success()
        discount_sign_in(self.request)
        # A time, since a number of seconds would begin anew each time the session is stored.
        self.request.session.set_expiry(timezone.now() + timedelta(seconds=SESSION_SECONDS))
        return answer

    def login_failure(self) -> HttpResponse:
        return _failed(self.request)


def _told(reason: Exception) -> str:
    """Return what may be logged: messages of HTTP errors have the body, and other ones what somebody sent."""
    return str(reason) if type(reason) is SuspiciousOperation else type(reason).__name__


def _failed(
    request: HttpRequest, why: str = "Sign-in failed, or no role is given to your groups. Ask an administrator."
) -> HttpResponse:
    messages.error(request, why)
    return HttpResponseRedirect(reverse("admin:login"))


urlpatterns = [
    path("authenticate/", SignIn.as_view(), name="oidc_authentication_init"),
    path("callback/", SignInReturn.as_view(), name="oidc_authentication_callback"),
]
