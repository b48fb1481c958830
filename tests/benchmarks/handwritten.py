"""The benchmark's questions as somebody would write them by hand, who knows the policy and the fact table.

The same text serves SQLite and PostgreSQL, but for how facts come out of JSON. `{has_role_User_Repo}` is the number
of the signature has_role(User, String, Repo), `:actor` a parameter. Every answer minds what the policy minds: facts
of `has_permission` and `allow` themselves are looked up too. Join order is pinned with CROSS JOIN, from the side that
is given.

Context facts are 100 roles of one signature, in a CTE read once; only what reads that signature is doubled.
"""

from __future__ import annotations

from dataclasses import dataclass

# ---- pieces ------------------------------------------------------------------------------------------------

CONTEXT = {
    "sqlite": (
        "c(a0, a1, a2) AS MATERIALIZED"
        " (SELECT value ->> 1, value ->> 2, value ->> 3 FROM json_each(:facts) WHERE value ->> 0 = {brought})"
    ),
    "postgresql": (
        'c(a0, a1, a2) AS MATERIALIZED (SELECT (value ->> 1) COLLATE "C", (value ->> 2) COLLATE "C",'
        ' (value ->> 3) COLLATE "C" FROM jsonb_array_elements(CAST(:facts AS jsonb))'
        " WHERE CAST(value ->> 0 AS integer) = {brought})"
    ),
}

STATED = """SELECT 1 FROM authz_fact
WHERE sig = {has_permission_User_@} AND a0 = :actor AND a1 = :action AND a2 = :resource
UNION ALL SELECT 1 FROM authz_fact WHERE sig = {allow_User_@} AND a0 = :actor AND a1 = :action AND a2 = :resource"""

STATED_LIST = """SELECT a2 FROM authz_fact WHERE sig = {has_permission_User_@} AND a0 = :actor AND a1 = :action
UNION SELECT a2 FROM authz_fact WHERE sig = {allow_User_@} AND a0 = :actor AND a1 = :action"""

TEAMS = """team(t) AS (
  SELECT a1 FROM authz_fact WHERE sig = {has_group_User_Team} AND a0 = :actor
  UNION SELECT g.a1 FROM team CROSS JOIN authz_fact g WHERE g.sig = {has_group_Team_Team} AND g.a0 = team.t)"""

UP = """up(f) AS (
  SELECT a2 FROM authz_fact WHERE sig = {has_relation_Doc_Folder} AND a0 = :resource AND a1 = 'folder'
  UNION
  SELECT p.a2 FROM up CROSS JOIN authz_fact p
  WHERE p.sig = {has_relation_Folder_Folder} AND p.a0 = up.f AND p.a1 = 'parent')"""


def on_doc(roles: str, with_context: bool) -> str:
    """That the actor has one of the roles on the document, itself or through folders and teams."""
    brought = f"UNION ALL SELECT 1 FROM c CROSS JOIN up WHERE c.a0 = :actor AND c.a1 IN ({roles}) AND c.a2 = up.f"
    return f"""EXISTS (
  SELECT 1 FROM authz_fact WHERE sig = {{has_role_User_Doc}} AND a0 = :actor AND a1 IN ({roles}) AND a2 = :resource
  UNION ALL
  SELECT 1 FROM up CROSS JOIN authz_fact x
  WHERE x.sig = {{has_role_User_Folder}} AND x.a0 = :actor AND x.a1 IN ({roles}) AND x.a2 = up.f
  UNION ALL
  SELECT 1 FROM team CROSS JOIN up CROSS JOIN authz_fact x
  WHERE x.sig = {{has_role_Team_Folder}} AND x.a0 = team.t AND x.a1 IN ({roles}) AND x.a2 = up.f
  {brought if with_context else ""})"""


def down(name: str, roles: str, with_context: bool) -> str:
    """The folders on which the actor has one of the roles, and all below them."""
    brought = f"UNION SELECT a2 FROM c WHERE a0 = :actor AND a1 IN ({roles})"
    return f"""{name}(f) AS (
  SELECT a2 FROM authz_fact WHERE sig = {{has_role_User_Folder}} AND a0 = :actor AND a1 IN ({roles})
  UNION SELECT x.a2 FROM team CROSS JOIN authz_fact x
  WHERE x.sig = {{has_role_Team_Folder}} AND x.a0 = team.t AND x.a1 IN ({roles})
  {brought if with_context else ""}
  UNION SELECT p.a0 FROM {name} CROSS JOIN authz_fact p
  WHERE p.sig = {{has_relation_Folder_Folder}} AND p.a2 = {name}.f AND p.a1 = 'parent')"""


def docs(folders: str, roles: str) -> str:
    return f"""SELECT a2 AS d FROM authz_fact WHERE sig = {{has_role_User_Doc}} AND a0 = :actor AND a1 IN ({roles})
UNION SELECT p.a0 FROM {folders} CROSS JOIN authz_fact p
WHERE p.sig = {{has_relation_Doc_Folder}} AND p.a2 = {folders}.f AND p.a1 = 'folder'"""


LIMIT = 10_001  # a page of the longest list, and whether there is another one
VIEWERS, AUDITORS = "'viewer', 'editor'", "'auditor'"

# ---- the questions --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Handwritten:
    """`plain` and `with_context` are the bodies; `tables` the CTEs before them."""

    name: str
    action: str
    resource_type: str
    is_list: bool
    brought: str  # the signature of the context facts
    tables: tuple[str, ...]
    plain: str
    tables_with_context: tuple[str, ...]
    with_context: str
    actors: tuple[str, ...] = ()  # given ones; random users otherwise

    def text(self, vendor: str, brings_facts: bool) -> str:
        tables = (CONTEXT[vendor], *self.tables_with_context) if brings_facts else self.tables
        head = f"WITH RECURSIVE {', '.join(tables)}\n" if tables else ""
        body = (self.with_context if brings_facts else self.plain).replace("@", self.resource_type)
        return head + body


def authorize(name: str, action: str, kind: str, brought: str, tables: tuple[str, ...], grant) -> Handwritten:
    """`grant(with_context)` is a condition."""
    plain, doubled = (f"SELECT EXISTS ({STATED}) OR ({grant(each)})" for each in (False, True))
    return Handwritten(name, action, kind, False, brought, tables, plain, tables, doubled)


def listing(name: str, action: str, kind: str, brought: str, tables, rows, actors: tuple[str, ...] = ()) -> Handwritten:
    """`tables(with_context)` are CTEs, `rows(with_context)` a SELECT of ids."""
    # Sorted outside: a sorted UNION tempts SQLite to walk a whole signature in the order of its ids.
    plain, doubled = (
        f"SELECT * FROM ({rows(each)} UNION {STATED_LIST}) x ORDER BY 1 LIMIT {LIMIT}" for each in (False, True)
    )
    return Handwritten(name, action, kind, True, brought, tables(False), plain, tables(True), doubled, actors)


def direct(with_context: bool) -> str:
    brought = "OR EXISTS (SELECT 1 FROM c WHERE a0 = :actor AND a1 IN ('writer', 'admin') AND a2 = :resource)"
    return f"""EXISTS (SELECT 1 FROM authz_fact WHERE sig = {{has_role_User_Project}} AND a0 = :actor
  AND a1 IN ('writer', 'admin') AND a2 = :resource) {brought if with_context else ""}"""


def organisation(with_context: bool) -> str:
    brought = "UNION ALL SELECT 1 FROM c WHERE a0 = :actor AND a1 IN ('reader', 'writer', 'admin') AND a2 = :resource"
    return f"""EXISTS (
  SELECT 1 FROM authz_fact WHERE sig = {{has_role_User_Repo}} AND a0 = :actor
    AND a1 IN ('reader', 'writer', 'admin') AND a2 = :resource
  UNION ALL
  SELECT 1 FROM authz_fact r CROSS JOIN authz_fact o
  WHERE r.sig = {{has_relation_Repo_Org}} AND r.a0 = :resource AND r.a1 = 'organization'
    AND o.sig = {{has_role_User_Org}} AND o.a0 = :actor AND o.a1 IN ('member', 'admin') AND o.a2 = r.a2
  UNION ALL
  SELECT 1 FROM authz_fact WHERE sig = {{is_public_Repo}} AND a0 = :resource
  {brought if with_context else ""})"""


def intersection(with_context: bool) -> str:
    verified = "EXISTS (SELECT 1 FROM authz_fact WHERE sig = {is_verified_User} AND a0 = :actor)"
    return f"{verified} AND {on_doc(VIEWERS, with_context)} AND {on_doc(AUDITORS, with_context)}"


def exclusion(with_context: bool) -> str:
    return f"""NOT EXISTS (SELECT 1 FROM authz_fact WHERE sig = {{is_banned_User}} AND a0 = :actor)
  AND NOT EXISTS (SELECT 1 FROM authz_fact WHERE sig = {{is_locked_Doc}} AND a0 = :resource)
  AND {on_doc(VIEWERS, with_context)}"""


def repositories(with_context: bool) -> str:
    brought = "UNION SELECT a2 FROM c WHERE a0 = :actor AND a1 IN ('reader', 'writer', 'admin')"
    return f"""SELECT a2 FROM authz_fact WHERE sig = {{has_role_User_Repo}} AND a0 = :actor
    AND a1 IN ('reader', 'writer', 'admin')
  UNION SELECT r.a0 FROM authz_fact o CROSS JOIN authz_fact r
  WHERE o.sig = {{has_role_User_Org}} AND o.a0 = :actor AND o.a1 IN ('member', 'admin')
    AND r.sig = {{has_relation_Repo_Org}} AND r.a2 = o.a2 AND r.a1 = 'organization'
  UNION SELECT a0 FROM authz_fact WHERE sig = {{is_public_Repo}}
  {brought if with_context else ""}"""


def documents(with_context: bool) -> str:
    return docs("viewed", VIEWERS)


def commented(with_context: bool) -> str:
    return f"""SELECT d FROM ({docs("viewed", VIEWERS)}) x
WHERE NOT EXISTS (SELECT 1 FROM authz_fact WHERE sig = {{is_banned_User}} AND a0 = :actor)
  AND NOT EXISTS (SELECT 1 FROM authz_fact l WHERE l.sig = {{is_locked_Doc}} AND l.a0 = x.d)"""


def signed(with_context: bool) -> str:
    return f"""SELECT v.d FROM ({docs("viewed", VIEWERS)}) v
WHERE EXISTS (SELECT 1 FROM authz_fact WHERE sig = {{is_verified_User}} AND a0 = :actor)
  AND v.d IN ({docs("audited", AUDITORS)})"""


def no_tables(with_context: bool) -> tuple[str, ...]:
    return ()


def viewed_tables(with_context: bool) -> tuple[str, ...]:
    return TEAMS, down("viewed", VIEWERS, with_context)


def both_tables(with_context: bool) -> tuple[str, ...]:
    return *viewed_tables(with_context), down("audited", AUDITORS, with_context)


BOSS = ("boss",)
FOLDER_ROLE = "has_role_User_Folder"

QUESTIONS = (
    authorize("direct role", "write", "Project", "has_role_User_Project", (), direct),
    authorize("organisation", "read", "Repo", "has_role_User_Repo", (), organisation),
    authorize("folders and groups", "read", "Doc", FOLDER_ROLE, (TEAMS, UP), lambda c: on_doc(VIEWERS, c)),
    authorize("intersection", "sign", "Doc", FOLDER_ROLE, (TEAMS, UP), intersection),
    authorize("exclusion", "comment", "Doc", FOLDER_ROLE, (TEAMS, UP), exclusion),
    listing("list repositories", "read", "Repo", "has_role_User_Repo", no_tables, repositories),
    listing("list documents", "read", "Doc", FOLDER_ROLE, viewed_tables, documents),
    listing("list by exclusion", "comment", "Doc", FOLDER_ROLE, viewed_tables, commented),
    listing("list by intersection", "sign", "Doc", FOLDER_ROLE, both_tables, signed),
    listing("10,000 repositories", "read", "Repo", "has_role_User_Repo", no_tables, repositories, BOSS),
    listing("10,000 documents", "read", "Doc", FOLDER_ROLE, viewed_tables, documents, BOSS),
)
