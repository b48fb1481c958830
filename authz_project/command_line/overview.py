"""The commands by what they are about, each in one line."""

from pathlib import Path

from authz_project import __version__

GROUPS: dict[str, dict[str, str]] = {
    "Run": {
        "serve": "prepare the database and run the service",
        "load_example": "load a complete world to look at, or list which there are",
        "createsuperuser": "make a login to the admin",
        "version": "say which version this is, and what it works on",
    },
    "Policy": {
        "load_policy": "compile policy files, run their tests, and make them the active policy",
        "check_policy": "say what is wrong with policy files",
        "format_policy": "lay policy files out in the one way that all have",
        "test_policy": "run the tests in policy files",
        "language_server": "help to write policies in your editor (needs authz-project[editor])",
        "preview_policy": "show whose access policy files would change",
        "picture": "draw what grants what, as SVG or Mermaid",
        "show_policy": "print the active policy, or an earlier version",
        "policy_history": "list the versions of the policy",
        "diff_policy": "show what differs between two policies",
        "activate_policy": "return to an earlier version",
    },
    "Facts": {
        "load_facts": "store the facts of a file",
        "dump_facts": "write all facts to a file",
        "delete_facts": "delete the facts that match a pattern",
        "audit_facts": "list kinds of facts that the policy has no use for",
    },
    "In step": {
        "sync_facts": "compare facts with the rows of your databases, and make them the same",
        "drain_outbox": "make the changes that your application wrote down in its own transactions",
    },
    "From other engines": {
        "import_openfga": "make a policy and facts of an OpenFGA model and its tuples",
        "import_spicedb": "make a policy and facts of a SpiceDB schema and its relationships",
    },
    "Ask": {
        "ask": "ask whether somebody may do something, which actions, or on which resources",
        "explain": "show why somebody may do something, or what stands in the way",
    },
    "Keys": {
        "create_api_key": "make a key, and the environment that it opens",
        "list_api_keys": "list the keys, without their secrets",
        "rotate_api_key": "make a key's successor, and end the key after a time",
        "revoke_api_key": "end a key at once",
    },
    "Time": {
        "review_access": "list who gained and who lost access between two moments",
        "follow_changes": "print each change as it happens",
        "replay_decisions": "ask again what a decision log has",
        "expire_facts": "make past facts of those that have ended",
        "prune_history": "drop old history",
        "forget_facts": "remove past facts for good",
    },
    "Local SQL": {
        "check_bindings": "say what is wrong with data bindings",
        "ask_local": "print the SQL that answers in your own database",
    },
    "Look after": {
        "check_service": "say whether all is there that a server needs",
        "migrate": "prepare the database, or bring it up to date",
        "backup": "copy the database while the service runs",
        "verify_backup": "say whether a copy is good",
        "check_database": "say whether what is stored agrees with itself",
        "check": "say what is wrong with the settings; --deploy also what is unsafe",
        "changepassword": "change the password of a login to the admin",
    },
}


def overview(program: str) -> str:
    """Return what `authz --help` prints."""
    width = max(len(name) for group in GROUPS.values() for name in group)
    lines = [
        version_line(),
        "",
        f"usage: {program} COMMAND …",
        "",
    ]
    for title, commands in GROUPS.items():
        lines += [title, *(f"  {name:<{width}}  {about}" for name, about in commands.items()), ""]
    lines.append(f"`{program} COMMAND --help` says what a command takes, `{program} help --all` lists all there are.")
    return "\n".join(lines)


def version_line() -> str:
    return f"authz {__version__}"


def program_name(called: str) -> str:
    """Return what somebody types before a command: `authz`, or in a clone `python manage.py`."""
    name = Path(called).name
    return f"python {name}" if name.endswith(".py") else name
