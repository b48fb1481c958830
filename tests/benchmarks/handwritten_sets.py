"""Statements by hand for the questions that have several answers: actions, given resources, queries.

Written as those of `handwritten` are: what an author would write who knows the policy and the fact table.
"""

from tests.benchmarks.handwritten import AUDITORS, TEAMS, UP, VIEWERS, docs, down

IDS = {"sqlite": "json_each(:ids) j", "postgresql": "jsonb_array_elements_text(CAST(:ids AS jsonb)) j"}
STATED_ACTIONS = """SELECT a1 FROM authz_fact WHERE sig = {has_permission_User_@} AND a0 = :actor AND a2 = :resource
UNION SELECT a1 FROM authz_fact WHERE sig = {allow_User_@} AND a0 = :actor AND a2 = :resource"""
STATED_AMONG = """EXISTS (SELECT 1 FROM authz_fact s WHERE s.sig = {has_permission_User_@} AND s.a0 = :actor
    AND s.a1 = :action AND s.a2 = {id})
  OR EXISTS (SELECT 1 FROM authz_fact s
    WHERE s.sig = {allow_User_@} AND s.a0 = :actor AND s.a1 = :action AND s.a2 = {id})"""

ORGANISATION = """EXISTS (SELECT 1 FROM authz_fact r CROSS JOIN authz_fact o
    WHERE r.sig = {has_relation_Repo_Org} AND r.a0 = <resource> AND r.a1 = 'organization'
      AND o.sig = {has_role_User_Org} AND o.a0 = :actor AND o.a1 IN ('member', 'admin') AND o.a2 = r.a2)"""
PUBLIC = "EXISTS (SELECT 1 FROM authz_fact p WHERE p.sig = {is_public_Repo} AND p.a0 = <resource>)"


def on_a_repository() -> str:
    """Its actions."""
    reading = f"EXISTS (SELECT 1 FROM held) OR {ORGANISATION} OR {PUBLIC}".replace("<resource>", ":resource")
    return f"""WITH held(role) AS (SELECT a1 FROM authz_fact WHERE sig = {{has_role_User_Repo}} AND a0 = :actor
  AND a1 IN ('reader', 'writer', 'admin') AND a2 = :resource)
SELECT 'read' WHERE {reading}
UNION SELECT 'write' WHERE EXISTS (SELECT 1 FROM held WHERE role IN ('writer', 'admin'))
UNION {STATED_ACTIONS.replace("@", "Repo")} ORDER BY 1"""


def on_a_document() -> str:
    """Its actions: the roles are found once, whatever they allow."""
    roles = f"({VIEWERS}, {AUDITORS})"
    views, audits = (f"EXISTS (SELECT 1 FROM held WHERE role IN ({each}))" for each in (VIEWERS, AUDITORS))
    is_banned = "EXISTS (SELECT 1 FROM authz_fact WHERE sig = {is_banned_User} AND a0 = :actor)"
    is_locked = "EXISTS (SELECT 1 FROM authz_fact WHERE sig = {is_locked_Doc} AND a0 = :resource)"
    is_verified = "EXISTS (SELECT 1 FROM authz_fact WHERE sig = {is_verified_User} AND a0 = :actor)"
    return f"""WITH RECURSIVE {TEAMS}, {UP}, held(role) AS (
  SELECT a1 FROM authz_fact WHERE sig = {{has_role_User_Doc}} AND a0 = :actor AND a1 IN {roles} AND a2 = :resource
  UNION SELECT x.a1 FROM up CROSS JOIN authz_fact x
  WHERE x.sig = {{has_role_User_Folder}} AND x.a0 = :actor AND x.a1 IN {roles} AND x.a2 = up.f
  UNION SELECT x.a1 FROM team CROSS JOIN up CROSS JOIN authz_fact x
  WHERE x.sig = {{has_role_Team_Folder}} AND x.a0 = team.t AND x.a1 IN {roles} AND x.a2 = up.f)
SELECT 'read' WHERE {views}
UNION SELECT 'edit' WHERE EXISTS (SELECT 1 FROM held WHERE role = 'editor')
UNION SELECT 'sign' WHERE {views} AND {audits} AND {is_verified}
UNION SELECT 'comment' WHERE {views} AND NOT {is_banned} AND NOT {is_locked}
UNION {STATED_ACTIONS.replace("@", "Doc")} ORDER BY 1"""


def repositories_among(vendor: str) -> str:
    direct = """EXISTS (SELECT 1 FROM authz_fact x WHERE x.sig = {has_role_User_Repo} AND x.a0 = :actor
    AND x.a1 IN ('reader', 'writer', 'admin') AND x.a2 = <resource>)"""
    granted = f"{direct} OR {ORGANISATION} OR {PUBLIC} OR {among('Repo')}".replace("<resource>", "j.value")
    return f"SELECT j.value FROM {IDS[vendor]} WHERE {granted}"


def documents_among(vendor: str) -> str:
    """From the actor's folders down: for many documents, less than from each of them up."""
    granted = f"j.value IN ({docs('viewed', VIEWERS)}) OR {among('Doc')}".replace("<resource>", "j.value")
    return f"""WITH RECURSIVE {TEAMS}, {down("viewed", VIEWERS, False)}
SELECT j.value FROM {IDS[vendor]} WHERE {granted}"""


def among(kind: str) -> str:
    return STATED_AMONG.replace("@", kind).replace("{id}", "<resource>")


CLOSERS = """SELECT x.a0 FROM authz_fact r CROSS JOIN authz_fact x
WHERE r.sig = {has_relation_Issue_Repo} AND r.a0 = :resource AND r.a1 = 'repository'
  AND x.sig = {has_role_User_Repo} AND x.a1 IN ('writer', 'admin') AND x.a2 = r.a2
UNION SELECT x.a0 FROM authz_fact r CROSS JOIN authz_fact x
WHERE r.sig = {has_relation_Issue_Repo} AND r.a0 = :resource AND r.a1 = 'repository'
  AND x.sig = {has_permission_User_Repo} AND x.a1 = 'write' AND x.a2 = r.a2
UNION SELECT a2 FROM authz_fact WHERE sig = {has_relation_Issue_User} AND a0 = :resource AND a1 = 'creator'
UNION SELECT a0 FROM authz_fact WHERE sig = {has_permission_User_Issue} AND a1 = 'close' AND a2 = :resource
UNION SELECT a0 FROM authz_fact WHERE sig = {allow_User_Issue} AND a1 = 'close' AND a2 = :resource"""

CLOSES = """SELECT EXISTS (
  SELECT 1 FROM authz_fact r CROSS JOIN authz_fact x
  WHERE r.sig = {has_relation_Issue_Repo} AND r.a0 = :resource AND r.a1 = 'repository'
    AND x.sig = {has_role_User_Repo} AND x.a0 = :actor AND x.a1 IN ('writer', 'admin') AND x.a2 = r.a2
  UNION ALL SELECT 1 FROM authz_fact r CROSS JOIN authz_fact x
  WHERE r.sig = {has_relation_Issue_Repo} AND r.a0 = :resource AND r.a1 = 'repository'
    AND x.sig = {has_permission_User_Repo} AND x.a0 = :actor AND x.a1 = 'write' AND x.a2 = r.a2
  UNION ALL SELECT 1 FROM authz_fact
  WHERE sig = {has_relation_Issue_User} AND a0 = :resource AND a1 = 'creator' AND a2 = :actor
  UNION ALL SELECT 1 FROM authz_fact
  WHERE sig = {has_permission_User_Issue} AND a0 = :actor AND a1 = 'close' AND a2 = :resource
  UNION ALL SELECT 1 FROM authz_fact
  WHERE sig = {allow_User_Issue} AND a0 = :actor AND a1 = 'close' AND a2 = :resource)"""

IN_ORGANISATION = """SELECT r.a0 FROM authz_fact r
WHERE r.sig = {has_relation_Repo_Org} AND r.a2 = :org AND r.a1 = 'organization' AND (
  EXISTS (SELECT 1 FROM authz_fact x WHERE x.sig = {has_role_User_Repo} AND x.a0 = :actor
    AND x.a1 IN ('writer', 'admin') AND x.a2 = r.a0)
  OR EXISTS (SELECT 1 FROM authz_fact x WHERE x.sig = {has_permission_User_Repo} AND x.a0 = :actor
    AND x.a1 = 'write' AND x.a2 = r.a0)
  OR EXISTS (SELECT 1 FROM authz_fact x WHERE x.sig = {allow_User_Repo} AND x.a0 = :actor
    AND x.a1 = 'write' AND x.a2 = r.a0))
ORDER BY 1"""
