"""`authz_project.testing`: a service for the tests of an application."""

import subprocess
import sys

import pytest

from authz_project.testing import Recorder, ServiceFailed, running_service

POLICY = """
actor User {}
resource Doc { permissions = ["read"]; roles = ["reader"]; "read" if "reader"; }
test "t" { assert_not allow(User{"a"}, "read", Doc{"d"}); }
"""
ASKED = {"actor_type": "User", "actor_id": "a", "action": "read", "resource_type": "Doc", "resource_id": "d"}
ROLE = {"predicate": "has_role", "args": [
    {"type": "User", "id": "a"}, {"type": "String", "id": "reader"}, {"type": "Doc", "id": "d"},
]}  # fmt: skip


def test_each_environment_is_its_own_and_nothing_is_left():
    with running_service() as service:
        one, other = service.environment(POLICY), service.environment(POLICY)
        open_one = service.environment(POLICY, allow_all=True)
        one.post("/batch", [{"inserts": [ROLE]}])
        found = [each.post("/authorize", ASKED)["allowed"] for each in (one, other, open_one)]
        assert found == [True, False, True]
        with pytest.raises(ServiceFailed, match=r"400 .*unexpected"):
            other.publish("nonsense {")
    with pytest.raises(OSError):
        one.post("/authorize", ASKED)


def test_a_recorder_passes_on_and_keeps():
    recorder = Recorder([3, 1])
    recorder.sort(reverse=True)
    assert recorder.index(1) == 1
    assert [tuple(call) for call in recorder.calls] == [
        ("sort", (), {"reverse": True}, None), ("index", (1,), {}, 1),
    ]  # fmt: skip
    with pytest.raises(ValueError):
        recorder.index(7)
    assert len(recorder.calls) == 2


def test_it_imports_nothing_but_the_standard_library():
    code = "import sys, authz_project.testing; print(any(name.startswith(('django', 'rest')) for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
