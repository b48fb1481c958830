"""What `tests/code_mutants.py` changes: modules with the tests of their area, and changes picked by hand.

An area's number says how many of the changes that its syntax tree offers are tried. Its tests are named as
`folder: module module`, quick ones first; with `--wide`, all tests of the folder follow.
"""

_KEYS = "authz_project: keys key_scopes . revocation"
_ENGINE = (
    "checks: answers every_value_but_some guarded_closures leaves golden_walks no_arguments shared_ids golden_plans"
    " properties: engine_equals_reference every_way coherence checks: alike_arms query as_of recursion_inside"
)
_RULES = (
    "policy: safety rules_golden infer implied normalise assertions signatures declarations"
    " properties: engine_equals_reference policy: compile strata"
)
_LOCAL = "localsql: cases residual render statements views freshness"

AREAS = {
    "authz_project/admin.py": (3, "authz_project: admin users console"),
    "authz_project/keys.py": (4, f"{_KEYS} authz_project: key_commands key_use"),
    "authz_project/limits.py": (3, "authz_project: rate_limit logins"),
    "authz_project/middleware.py": (
        4,
        "authz_project: foreign_requests api errors facts: admin authz_project: attacks",
    ),
    "authz_project/route.py": (4, f"authz_project: api errors rate_limit two_ways {_KEYS} replicas: reading"),
    "checks/ask_pages/admin.py": (2, "checks: ask_page review_access picture editor_panes"),
    "checks/asking/ask.py": (5, f"checks: freshness answer_cache cache names {_ENGINE}"),
    "checks/asking/by_rows.py": (3, f"checks: authorize_each {_ENGINE}"),
    "checks/asking/limits.py": (2, "checks: time_limit turns"),
    "checks/asking/paging.py": (4, "checks: list_paging as_of policy: pagination replicas: reading"),
    "checks/asking/question.py": (4, f"checks: freshness answer_cache {_KEYS} facts: ends {_ENGINE}"),
    "checks/asking/run.py": (2, "checks: time_limit turns one_moment query freshness"),
    "checks/asking/snapshot.py": (2, "checks: one_moment review_access policy_tests workbench large_reviews"),
    "checks/engine/compile.py": (5, _ENGINE),
    "checks/engine/plan/draft.py": (3, _ENGINE),
    "checks/engine/plan/planner.py": (4, _ENGINE),
    "checks/engine/plan/unfold.py": (3, _ENGINE),
    "checks/engine/rules/clauses.py": (2, _ENGINE),
    "checks/engine/rules/recursion.py": (3, _ENGINE),
    "checks/engine/rules/rewrite.py": (4, f"checks: rule_passes {_ENGINE}"),
    "checks/engine/rules/specialise.py": (3, f"checks: rule_passes {_ENGINE}"),
    "checks/engine/sql/render.py": (4, _ENGINE),
    "checks/engine/sql/stored.py": (4, _ENGINE),
    "checks/serializers.py": (2, "checks: views query as_of authorize_each unused_context"),
    "facts/accept.py": (3, "facts: accept names views checks: unused_context warnings"),
    "facts/feed.py": (3, "facts: feed following"),
    "facts/history.py": (3, "facts: history history_kept history_pages ends expiry"),
    "facts/keyset_pages.py": (3, "facts: walk pages history_pages"),
    "facts/numbering.py": (2, "facts: store views history ends first_load checks: freshness as_of_signatures"),
    "facts/pages/admin.py": (2, "facts: admin pages history_pages"),
    "facts/read.py": (2, "facts: read views history pages"),
    "facts/store.py": (4, "facts: store together views ends expiry admin"),
    "facts/table.py": (2, "facts: store history ends expiry together checks: as_of"),
    "facts/together.py": (2, "facts: together store views ends following"),
    "facts/wire.py": (4, "facts: wire formats views wire_anything . error_shape checks: views"),
    "localsql/asking.py": (2, _LOCAL),
    "localsql/binding_queries.py": (2, f"localsql: bindings {_LOCAL}"),
    "localsql/bindings.py": (4, f"localsql: bindings {_LOCAL}"),
    "localsql/dialects.py": (4, f"{_LOCAL} localsql: literals exact_ids"),
    "localsql/fold.py": (2, _LOCAL),
    "localsql/plan.py": (2, _LOCAL),
    "localsql/render.py": (3, _LOCAL),
    "localsql/sync/outbox.py": (3, "localsql/sync: outbox"),
    "localsql/sync/run.py": (4, "localsql/sync: command sorting in_step explaining csv_files watch"),
    "policy/active.py": (3, f"{_KEYS} checks: freshness policy: freshness publishing versions"),
    "policy/core/journal.py": (3, "facts: waiting history together following ends"),
    "policy/core/pagination.py": (2, "policy: pagination facts: walk checks: list_paging"),
    "policy/endpoint.py": (4, f"authz_project: api {_KEYS} . error_shape authz_project: attacks openapi"),
    "policy/moments.py": (3, "checks: as_of as_of_signatures facts: history"),
    "policy/publishing.py": (4, "policy: publishing versions drafts views admin"),
    "policy/replicas/reading.py": (2, "replicas: reading parts"),
    "policy/rules/flatten.py": (2, _RULES),
    "policy/rules/safety.py": (3, _RULES),
    "policy/rules/types.py": (3, _RULES),
    "policy/values.py": (3, "facts: wire formats views wire_anything localsql: exact_ids"),
}

# fmt: off
PICKED = [
    # keys, scopes, environments
    ("authz_project/keys.py", " AND k.revoked_at IS NULL", ""),
    ("authz_project/keys.py", " or TEST_SLUG.fullmatch(slug_of(token))", ""),
    ("policy/active.py", " AND ({self.expires_at} IS NULL OR {lasts})", ""),
    ("policy/active.py", "if needs is not None and not row[8]:", "if False:"),
    ("checks/asking/question.py", "{after} AND {check.scopes[Scope.READ]} AND {here}", "{after} AND {here}"),
    (
        "checks/asking/question.py",
        "{after} AND {check.scopes[Scope.READ]} AND {here}",
        "{after} AND {check.scopes[Scope.READ]}",
    ),
    ("facts/together.py", "{lasts} AND e.id = %s AND {check.scopes[Scope.FACTS]}", "{lasts} AND e.id = %s"),
    ("authz_project/route.py", 'for method in (*endpoint.handlers, "HEAD")', "for method in endpoint.handlers"),
    (
        "authz_project/admin.py",
        "return not permissions_of(holder).exclude(",
        "return True or permissions_of(holder).exclude(",
    ),
    ("facts/pages/admin.py", "if not self.has_delete_permission(request):", "if False:"),
    ("checks/ask_pages/admin.py", 'if not request.user.has_perm("authz_facts.view_signature"):', "if False:"),
    (
        "authz_project/middleware.py",
        "is_answered = _is_loopback(host) and not _is_cross_site(environ, host)",
        "is_answered = _is_loopback(host)",
    ),
    # cached statements and answers are confirmed
    (
        "checks/asking/question.py",
        '(*first, f" UNION ALL SELECT {IS_ANSWER}, x.* FROM (", *rows, ") x WHERE ", *here)',
        '(*first, f" UNION ALL SELECT {IS_ANSWER}, x.* FROM (", *rows, ") x")',
    ),
    ("checks/asking/question.py", '[(f"e.ends_mark <> {int(self.ends_mark)}",)]', "[]"),
    (
        "checks/asking/question.py",
        "        if self.watches_signatures:\n            moved.append",
        "        if False:\n            moved.append",
    ),
    ("checks/asking/question.py", "BETWEEN e.horizon AND {_OFFSET}", "<= {_OFFSET}"),
    # time and history
    ("facts/table.py", "expires_at > {int(at)})", "expires_at >= {int(at)})"),
    ("facts/table.py", "{until} > {int(revision)}", "{until} >= {int(revision)}"),
    ("facts/table.py", "expires_at > (SELECT {now_in(connection.vendor)}))", "expires_at >= 0)"),
    ("policy/moments.py", "s.since <= COALESCE(r.number", "s.since < COALESCE(r.number"),
    ("policy/moments.py", "WHERE l.environment_id = e.id AND l.at <= %s", "WHERE l.at <= %s"),
    ("facts/history.py", '"until <= %s"', '"until < %s"'),
    ("facts/history.py", "WHERE id = %s AND horizon < %s", "WHERE id = %s AND horizon <> %s"),
    ("policy/core/journal.py", "COALESCE({before}, 0)", "0"),
    ("facts/feed.py", "+since <= %s AND +until > %s", "+since <= %s AND +until >= %s"),
    # ids, literals, bindings
    ("facts/wire.py", '    if text == "*":', "    if False:"),
    ("facts/wire.py", 'and "" not in ids and "*" not in ids', 'and "" not in ids'),
    ("facts/wire.py", "len(text) > _SHORT and len(text.encode()) > MAX_ID_BYTES", "len(text) > MAX_ID_BYTES"),
    ("policy/values.py", "if not _MIN <= number <= _MAX:", "if not _MIN <= number <= _MAX + 1:"),
    ("localsql/dialects.py", 'if _PLAIN.fullmatch(value) and "--" not in value else', "if _PLAIN.match(value) else"),
    ("localsql/dialects.py", 'return f"({_one_of(side.sql, shown)} AND {exact})"', "return _one_of(side.sql, shown)"),
    ("localsql/binding_queries.py", "if isinstance(node, exp.Func) and _name(node) in _EFFECTS:", "if False:"),
    (
        "localsql/binding_queries.py",
        "exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Into, exp.Lock,",
        "exp.Insert, exp.Update, exp.Delete, exp.Merge,",
    ),
    # lists and pages
    ("facts/keyset_pages.py", "{'<' if ids.open else '<='}", "<="),
    (
        "checks/asking/paging.py",
        'return PageRequest(min(size_from_json(size, "page_size"), LARGEST), moment=moment)',
        'return PageRequest(size_from_json(size, "page_size"), moment=moment)',
    ),
    ("localsql/sync/outbox.py", "id = {mark} AND {self._kind.digest} = {mark}", "id = {mark}"),
    ("policy/publishing.py", "raise PolicyTestsFailed(report)", "pass"),
]
# fmt: on
