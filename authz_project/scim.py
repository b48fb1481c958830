"""Provisioning by SCIM 2.0 (RFC 7643 and 7644): users and groups of an identity provider become facts.

Imported only by `serve --scim`. `scim2_models` reads and writes the protocol's messages, and applies patches and
filters. Users and groups are rows of `ScimResource`; a file maps them to facts. Each change of a resource and the
changes of facts that follow from it are one transaction and one revision.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from hashlib import sha256
from operator import or_
from typing import Any, NamedTuple
from unicodedata import normalize

import email_validator
import orjson
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Prefetch, QuerySet
from pydantic import ValidationError
from scim2_models import (
    AuthenticationScheme,
    Bulk,
    ChangePassword,
    Context,
    EnterpriseUser,
    Error,
    ETag,
    Filter,
    Group,
    InvalidValueException,
    ListResponse,
    Meta,
    NotFoundException,
    Patch,
    PatchOp,
    PreconditionFailedException,
    ResourceType,
    Schema,
    SCIMException,
    ScimPolicy,
    SearchRequest,
    ServiceProviderConfig,
    Sort,
    TooManyException,
    UniquenessException,
    User,
)

from authz_project.models import ScimResource
from facts import store
from facts.wire import (
    Fact,
    FactPattern,
    exact_pattern,
    fact_from_json,
    fact_to_json,
    pattern_from_json,
    pattern_from_text,
)
from policy.active import Scope, confirm
from policy.core.journal import By
from policy.endpoint import OFFSET, Request, Response, caller, public_url_of, unconfirmed_caller
from policy.errors import AuthzError
from policy.yaml_text import LocatedMap, YamlRejected, document_from_yaml

ROOT = "/scim/v2"
CONTENT_TYPE = "application/scim+json"
MOST = 200  # resources per page
MOST_SEARCHED = 5_000  # resources that a filter is applied to; each takes up to a millisecond

# ---- the mapping --------------------------------------------------------------------------------------------------
# Names in braces are replaced by attributes. While a text is parsed as a fact, a private character stands for each, so
# that no attribute's value is ever parsed.

_PLACES = {"{userName}": "\ue001", "{id}": "\ue002", "{externalId}": "\ue003", "{group}": "\ue004"}
_NAMES = {mark: name.strip("{}") for name, mark in _PLACES.items()}
_MARKS = re.compile("[\ue001-\ue004]")
_OF_USER = re.compile("[\ue001-\ue003]")
ANY_GROUP = "*"
Templates = tuple[FactPattern, ...]


class MappingInvalid(AuthzError):
    """The mapping file is not valid."""


@dataclass(frozen=True)
class ScimMapping:
    """What follows from a user, from a user's groups, and what is deleted of a user who leaves."""

    users: Templates = ()
    groups: tuple[tuple[str, Templates], ...] = ()  # by the name of a group, or `*` for each
    left: Templates = ()

    def facts_of(self, user: dict[str, str], groups: Iterable[str]) -> set[Fact]:
        found = {_fact(template, user) for template in self.users}
        for group in groups:
            given = [each for name, templates in self.groups if name in (ANY_GROUP, group) for each in templates]
            found |= {_fact(template, user | {"group": group}) for template in given}
        return found

    def patterns_of(self, user: dict[str, str]) -> list[FactPattern]:
        """Return what is deleted of a user; there is nothing about an attribute that the user does not have."""
        templates = [each for each in self.left if all(map(user.get, _needed(each)))]
        return [pattern_from_json(_filled(template, user), "") for template in templates]


def mapping_of(text: str) -> ScimMapping:
    """Return the mapping in a YAML text; raise `MappingInvalid`."""
    try:
        document = document_from_yaml(text)
    except YamlRejected as reason:
        raise MappingInvalid(str(reason)) from None
    if not isinstance(document, LocatedMap) or not document.keys() <= {"users", "groups", "left"}:
        raise MappingInvalid("must be a map with the keys `users`, `groups` and `left`")
    groups = LocatedMap() if document.get("groups") is None else document["groups"]
    if not isinstance(groups, LocatedMap):
        raise MappingInvalid("`groups` must be a map from names of groups to lists of facts")
    of_groups = tuple((str(name), _templates(f"groups.{name}", given, True)) for name, given in groups.items())
    users, left = (_templates(key, document.get(key) or [], False, key == "left") for key in ("users", "left"))
    return ScimMapping(users, of_groups, left)


def _templates(place: str, given: object, may_name_group: bool, may_be_open: bool = False) -> Templates:
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise MappingInvalid(
            f'`{place}` must be a list of facts, such as has_role(User:{{userName}}, "member", Org:acme)'
        )
    found = []
    for text in given:
        marked = text
        for name, mark in _PLACES.items():
            marked = marked.replace(name, mark)
        try:
            template = pattern_from_text(marked)
        except AuthzError as reason:
            raise MappingInvalid(f"`{place}`, `{text}`: {reason.message}") from None
        if _MARKS.search(text) or "{" in marked:
            known = [name for name in _PLACES if may_name_group or name != "{group}"]
            raise MappingInvalid(f"`{place}`, `{text}`: only {', '.join(known)} may stand in braces")
        if not may_name_group and _PLACES["{group}"] in marked:
            raise MappingInvalid(f"`{place}`, `{text}`: {{group}} may stand below `groups` only")
        if not any(arg.id and _OF_USER.search(arg.id) for arg in template.args):  # it would be about everybody
            raise MappingInvalid(f"`{place}`, `{text}` must name the user, such as User:{{userName}}")
        if not (may_be_open or store.is_exact(template)):
            raise MappingInvalid(f"`{place}`, `{text}`: wildcards may stand below `left` only")
        found.append(template)
    return tuple(found)


def _fact(template: FactPattern, values: dict[str, str]) -> Fact:
    return fact_from_json(_filled(template, values), "")


def _needed(template: FactPattern) -> set[str]:
    return {_NAMES[mark] for arg in template.args for mark in _MARKS.findall(arg.id or "")}


def _filled(template: FactPattern, values: dict[str, str]) -> dict[str, object]:
    def value_of(found: re.Match[str]) -> str:
        name = _NAMES[found[0]]
        if not values.get(name):
            raise InvalidValueException(detail=f"the mapping of this service requires the attribute {name}")
        return values[name]

    args: list[object] = []
    for arg in template.args:
        named = {} if arg.id is None else {"id": _MARKS.sub(value_of, arg.id)}
        args.append(None if arg.type is None and not named else {"type": arg.type, **named})
    return {"predicate": template.predicate, "args": args}


# ---- resources ----------------------------------------------------------------------------------------------------

PERSON = User[EnterpriseUser]
Resource = Any  # of these models
MODELS: dict[str, Any] = {"Users": PERSON, "Groups": Group}
# As Entra sends patches, and attributes of schemas that this service does not have.
LENIENT = ScimPolicy(
    unknown=ScimPolicy.Unknown.ignore,
    remove_value_as_filter=ScimPolicy.RemoveValue.apply,
    unmatched_path_filter=ScimPolicy.UnmatchedPathFilter.create,
)


def _name_of(resource: Resource) -> str:
    return str((resource.user_name if isinstance(resource, User) else resource.display_name) or "")


def _key(name: str) -> str:
    """Return the form in which names are compared: case does not count."""
    return normalize("NFC", name.lower())


def _members(resource: Resource | None) -> set[str]:
    listed = (resource.members or ()) if isinstance(resource, Group) else ()
    return {str(member.value) for member in listed}


def _of(message: Any, model: Any) -> Any:
    """Return a message of the protocol about resources of the model."""
    return message[model]


_GROUPS = Prefetch("groups", ScimResource.objects.only("title"))  # not what they contain


class Directory:
    """The resources of an environment in one transaction, and the changes of facts that follow from theirs."""

    def __init__(self, environment_id: int, mapping: ScimMapping):
        self.environment_id, self.mapping = environment_id, mapping
        self.rows = ScimResource.objects.filter(environment_id=environment_id)
        self._touched: set[str] = set()  # ids of users
        self._gone: set[Fact] = set()
        self._left: list[FactPattern] = []

    def row(self, kind: str, uid: str, expected: str = "") -> ScimResource:
        row = self.rows.filter(kind=kind, uid=uid).first() if "\0" not in uid else None
        if row is None:
            raise NotFoundException(detail=f"{kind}/{uid} does not exist")
        if expected not in ("", "*") and version_of(row) not in re.split(r"\s*,\s*", expected):
            raise PreconditionFailedException(detail="the resource has changed since it was read")
        return row

    def save(self, row: ScimResource, resource: Resource) -> ScimResource:
        before = resource_of(row) if row.pk else None
        name, external = _name_of(resource), resource.external_id or None
        if not name or any("\0" in text or len(text) > 512 for text in (name, _key(name), external or "")):
            raise InvalidValueException(detail="names and externalId must have 1 to 512 characters, without NUL")
        if isinstance(resource, User):
            resource.password = None
            self._touched.add(row.uid)
            if before is not None:
                has_left = _is_active(before) and not _is_active(resource)
                self._leave(row, before, [] if has_left else self.mapping.patterns_of(_values(row, resource)))
        there, now = _members(before), _members(resource)
        is_renamed = isinstance(before, Group) and before.display_name != resource.display_name
        self._touched |= there | now if is_renamed else there ^ now
        row.name, row.title, row.external_id, row.resource = _key(name), name, external, _stored(resource)
        try:
            with transaction.atomic():
                row.save()
        except IntegrityError:
            raise UniquenessException(detail="another resource has this userName, displayName or externalId") from None
        row.members.add(*self._users(now - there))
        row.members.remove(*self._users(there - now))
        return row

    def _users(self, uids: set[str]) -> QuerySet[ScimResource]:
        return self.rows.filter(kind="Users", uid__in=uids)

    def remove(self, row: ScimResource) -> None:
        before = resource_of(row)
        if isinstance(before, Group):
            self._touched |= _members(before)
        else:
            for group in row.groups.all():
                changed = resource_of(group)
                changed.members = [each for each in changed.members or () if each.value != row.uid] or None
                self.save(group, changed)
            self._gone |= set(_facts(row))
            self._leave(row, before)
        row.delete()

    def _leave(self, row: ScimResource, user: Resource, stays: Sequence[FactPattern] = ()) -> None:
        """Delete the facts about the user, except what `stays`: after a change of name, those about the new one."""
        self._left += [each for each in self.mapping.patterns_of(_values(row, user)) if each not in stays]

    def changes(self) -> Iterator[store.Change]:
        """Yield the changes of facts that follow from what was saved and removed, and remember the facts."""
        new: set[Fact] = set()
        for row in self._users(self._touched).prefetch_related(_GROUPS):
            user, before = resource_of(row), set(_facts(row))
            names = [group.title for group in row.groups.all()]
            after = self.mapping.facts_of(_values(row, user), names) if _is_active(user) else set()
            self._gone |= before - after
            new |= after - before
            row.facts = orjson.dumps([fact_to_json(fact) for fact in sorted(after, key=str)]).decode()
            row.save(update_fields=["facts"])
        if self._gone or self._left:
            exact = [exact_pattern(fact) for fact in self._gone - new]
            yield store.Deletes([*exact, *self._left])
        if new:
            yield store.Inserts(sorted(new, key=str))


email_validator.SPECIAL_USE_DOMAIN_NAMES.clear()  # addresses in a company's own domain, such as ann@corp.local


def _is_active(user: Resource) -> bool:
    return user.active is not False


def _values(row: ScimResource, user: Resource) -> dict[str, str]:
    return {"userName": user.user_name, "id": row.uid, "externalId": user.external_id or ""}


def _facts(row: ScimResource) -> list[Fact]:
    return [fact_from_json(each, "") for each in orjson.loads(row.facts)]


def _stored(resource: Resource) -> str:
    kept = resource.model_dump()
    return orjson.dumps({name: value for name, value in kept.items() if name not in ("id", "meta")}).decode()


def resource_of(row: ScimResource) -> Resource:
    return MODELS[row.kind].model_validate(orjson.loads(row.resource) | {"id": row.uid}, scim_policy=LENIENT)


def version_of(row: ScimResource) -> str:
    return f'W/"{sha256(row.resource.encode()).hexdigest()[:16]}"'


# ---- requests -----------------------------------------------------------------------------------------------------


class ScimRequest(NamedTuple):
    """A request: what it names, and the URL of the interface."""

    request: Request
    kind: str
    uid: str
    url: str

    def directory(self) -> Directory:
        return Directory(caller(self.request).environment_id, settings.SCIM_MAPPING)

    def written(self, change: Callable[[Directory], ScimResource | None]) -> tuple[ScimResource | None, int]:
        """Make a change, and what follows from it, in one transaction; return its row and its revision."""
        made: list[ScimResource | None] = []
        who = caller(self.request)

        def changes() -> Iterator[store.Change]:  # begins once no one else can change the environment
            directory = Directory(confirm(unconfirmed_caller(self.request)).environment_id, settings.SCIM_MAPPING)
            made.append(change(directory))
            yield from directory.changes()

        done = store.apply(who.environment_id, changes(), By(who.author, self.request.id))
        return made[0], done.offset

    @property
    def expected(self) -> str:
        return str(self.request.headers.get("HTTP_IF_MATCH", "")).strip()


def answer(request: Request) -> Response:
    """Answer a request below `/scim/v2/`; errors of the protocol become its error messages."""
    kind, _, uid = request.headers["PATH_INFO"].removeprefix(ROOT).strip("/").partition("/")
    asked = ScimRequest(request, kind, uid, public_url_of(request.headers) + ROOT)
    try:
        with LENIENT:
            return _answer(asked)
    except SCIMException as reason:
        return _refused(reason.to_error())
    except ValidationError as reason:
        return _refused(Error.from_validation_errors(reason)[0])


def _answer(asked: ScimRequest) -> Response:
    about = {"ServiceProviderConfig": _config, "ResourceTypes": _resource_types, "Schemas": _schemas}
    method = "GET" if asked.request.method == "HEAD" else asked.request.method
    match method, asked.kind in MODELS, bool(asked.uid):
        case "GET", False, _ if asked.kind in about:
            return _about(asked, about[asked.kind](asked.url))
        case "GET", True, False:
            return _list(asked, dict(asked.request.query_params.items()))
        case "POST", _, _ if asked.uid == ".search" or asked.kind == ".search":
            asked.request.auth = confirm(replace(caller(asked.request), needs=Scope.READ))  # besides that of a POST
            return _list(asked, asked.request.data)
        case "GET", True, True:
            return _one(asked, asked.directory().row(asked.kind, asked.uid))
        case "POST", True, False:
            return _created(asked)
        case "PUT" | "PATCH", True, True:
            return _changed(asked, _replacement if method == "PUT" else _patched)
        case "DELETE", True, True:
            asked.written(lambda directory: directory.remove(directory.row(asked.kind, asked.uid, asked.expected)))
            return Response(b"", 204)
    if asked.kind in about or asked.kind in MODELS:
        return _refused(Error(status=405, detail=f"{asked.request.method} is not allowed here"))
    raise NotFoundException(detail="this endpoint does not exist")


def _created(asked: ScimRequest) -> Response:
    sent = MODELS[asked.kind].model_validate(asked.request.data, scim_ctx=Context.RESOURCE_CREATION_REQUEST)

    def create(directory: Directory) -> ScimResource:
        return directory.save(ScimResource(environment_id=directory.environment_id, kind=asked.kind), sent)

    row, offset = asked.written(create)
    assert row is not None
    response = _one(asked, row, 201, Context.RESOURCE_CREATION_RESPONSE)
    response.headers |= {"Location": f"{asked.url}/{row.kind}/{row.uid}", OFFSET: str(offset)}
    return response


def _changed(asked: ScimRequest, changed: Callable[[ScimRequest, Resource], Resource]) -> Response:
    def change(directory: Directory) -> ScimResource:
        row = directory.row(asked.kind, asked.uid, asked.expected)
        return directory.save(row, changed(asked, resource_of(row)))

    row, offset = asked.written(change)
    assert row is not None
    response = _one(asked, row)
    response.headers[OFFSET] = str(offset)
    return response


def _replacement(asked: ScimRequest, before: Resource) -> Resource:
    sent = MODELS[asked.kind].model_validate(asked.request.data, scim_ctx=Context.RESOURCE_REPLACEMENT_REQUEST)
    sent.replace(before)
    if isinstance(sent, User) and sent.active is None:  # not asserted: it lets nobody in again
        sent.active = before.active
    return sent


def _patched(asked: ScimRequest, before: Resource) -> Resource:
    kind = _of(PatchOp, MODELS[asked.kind])
    sent = kind.model_validate(_cleaned(asked.request.data), scim_ctx=Context.RESOURCE_PATCH_REQUEST)
    sent.patch(before)
    return before


def _cleaned(body: Any) -> Any:
    """Leave out the ids that Okta sends in values without a path: they are read-only.

    Of members to remove, leave out all but their ids: the library removes only what is equal in all that is sent, and
    would keep a member who was added with another display name, or none.
    """
    operations = body.get("Operations") if isinstance(body, dict) else None
    for each in operations if isinstance(operations, list) else ():
        if not isinstance(each, dict):
            continue
        path, value = str(each.get("path") or ""), each.get("value")
        if not path and isinstance(value, dict):
            value.pop("id", None)
        if value is not None and _MEMBERS.fullmatch(path) and str(each.get("op")).lower() == "remove":
            each["value"] = [_only_id(one) for one in value] if isinstance(value, list) else _only_id(value)
    return body


_MEMBERS = re.compile(r"(?:.*:)?members", re.IGNORECASE)


def _only_id(member: Any) -> Any:
    return {"value": member["value"]} if isinstance(member, dict) and "value" in member else member


def _list(asked: ScimRequest, params: dict[str, Any]) -> Response:
    kinds = [asked.kind] if asked.kind in MODELS else [*MODELS]
    model = reduce(or_, [MODELS[kind] for kind in kinds])
    search = _of(SearchRequest, model).model_validate(params, scim_ctx=Context.SEARCH_REQUEST)
    rows = asked.directory().rows.filter(kind__in=kinds).order_by("pk")
    found: Any = rows
    if search.filter is not None:
        rows = _narrowed(rows, kinds, str(search.filter).strip())
        looked_at = list(rows[: MOST_SEARCHED + 1])
        if len(looked_at) > MOST_SEARCHED:
            detail = f"this filter would search more than {MOST_SEARCHED:,} resources; begin it with userName eq …"
            raise TooManyException(detail=detail)
        found = [row for row in looked_at if search.filter.match(_described(row, asked.url))]
    total = len(found) if isinstance(found, list) else found.count()
    start, count = min(search.start_index or 1, 1 << 31), min(MOST if search.count is None else search.count, MOST)
    page = [_described(row, asked.url) for row in found[start - 1 : start - 1 + count]]
    return _listed(model, page, total, start, search)


# A filter that can hold for one resource only: `userName eq "ann"`, alone or with more that must hold, too.
_EXACT = re.compile(r'(\w+)\s+eq\s+("(?:[^"\\]|\\.)*")(?:\s+and\s+(?!.*\bor\b).*)?', re.IGNORECASE | re.DOTALL)
_COLUMNS = {
    "Users": {"username": "name", "externalid": "external_id", "id": "uid"},
    "Groups": {"displayname": "name", "externalid": "external_id", "id": "uid"},
}


def _narrowed(rows: QuerySet[ScimResource], kinds: list[str], text: str) -> QuerySet[ScimResource]:
    """Return the rows for which the filter may hold, by an index if it begins with one of these attributes."""
    exact = _EXACT.fullmatch(text)
    column = _COLUMNS[kinds[0]].get(exact[1].lower()) if exact and len(kinds) == 1 else None
    if exact is None or column is None:
        return rows
    try:
        value = str(orjson.loads(exact[2]))
    except ValueError:  # half of a surrogate pair, which is no text
        return rows.none()
    return rows.none() if "\0" in value else rows.filter(**{column: _key(value) if column == "name" else value})


def _listed(model: Any, page: list[Resource], total: int, start: int = 1, search: Any = None) -> Response:
    listed = _of(ListResponse, model)(total_results=total, start_index=start, items_per_page=len(page), resources=page)
    return _response(listed, Context.RESOURCE_QUERY_RESPONSE, search)


def _one(
    asked: ScimRequest, row: ScimResource, status: int = 200, context: Context = Context.RESOURCE_QUERY_RESPONSE
) -> Response:
    search = _of(SearchRequest, MODELS[asked.kind]).model_validate(dict(asked.request.query_params.items()))
    response = _response(_described(row, asked.url), context, search, status)
    response.headers["ETag"] = version_of(row)
    return response


def _described(row: ScimResource, url: str) -> Resource:
    resource = resource_of(row)
    resource.meta = Meta(
        resource_type=row.kind.removesuffix("s"), created=row.created_at, last_modified=row.changed_at,
        location=f"{url}/{row.kind}/{row.uid}", version=version_of(row),
    )  # fmt: skip
    return resource


def _response(message: Any, context: Context, search: Any = None, status: int = 200) -> Response:
    data = message.model_dump(scim_ctx=context, response_parameters=search)
    return Response(data, status, {"Content-Type": CONTENT_TYPE})


def _refused(error: Error) -> Response:
    return Response(error.model_dump(), error.status or 400, {"Content-Type": CONTENT_TYPE})


# ---- discovery ----------------------------------------------------------------------------------------------------


def _about(asked: ScimRequest, found: Any) -> Response:
    caller(asked.request)
    if not isinstance(found, list):
        return _response(found, Context.RESOURCE_QUERY_RESPONSE)
    if not asked.uid:
        return _listed(type(found[0]), found, len(found))
    for each in found:
        if each.id == asked.uid:
            return _response(each, Context.RESOURCE_QUERY_RESPONSE)
    raise NotFoundException(detail=f"{asked.kind}/{asked.uid} does not exist")


def _config(url: str) -> ServiceProviderConfig:
    return ServiceProviderConfig(
        patch=Patch(supported=True), bulk=Bulk(supported=False, max_operations=0, max_payload_size=0),
        filter=Filter(supported=True, max_results=MOST), change_password=ChangePassword(supported=False),
        sort=Sort(supported=False), etag=ETag(supported=True),
        authentication_schemes=[AuthenticationScheme(
            type=AuthenticationScheme.Type.oauthbearertoken, name="API key", primary=True,
            description="A key with the scopes read and facts",
        )],
        meta=Meta(resource_type="ServiceProviderConfig", location=f"{url}/ServiceProviderConfig"),
    )  # fmt: skip


def _resource_types(url: str) -> list[ResourceType]:
    found = [ResourceType.from_resource(model) for model in MODELS.values()]
    for each in found:
        each.meta = Meta(resource_type="ResourceType", location=f"{url}/ResourceTypes/{each.id}")
    return found


def _schemas(url: str) -> list[Schema]:
    found = [model.to_schema() for model in (User, EnterpriseUser, Group)]
    for each in found:
        each.meta = Meta(resource_type="Schema", location=f"{url}/Schemas/{each.id}")
    return found
