"""A hospital of six wards, with people who came and went."""

from collections.abc import Iterator

from authz_project.examples.example import PEOPLE, Example, ExampleQuestion, chance, fact, pick, unix
from facts.wire import Fact

WARDS = ("a1", "a2", "b1", "b2", "icu", "er")
TODAY_FROM, TODAY_TO = unix("2024-01-01"), unix("2038-01-01")  # assignments that hold, for as long as this is read
STAFF = {"head": 1, "physician": 3, "nurse": 6, "assistant": 2}  # on each ward
PATIENTS = 25  # on each ward


def facts() -> Iterator[Fact]:
    yield fact("has_role", "User:audrey", "auditor")
    for ward_number, ward in enumerate(WARDS):
        yield from _staff(ward, ward_number)
        for number in range(1, PATIENTS + 1):
            yield from _patient(ward, f"{ward}-{number:02}")
    yield from _stories()


def _staff(ward: str, ward_number: int) -> Iterator[Fact]:
    place, number = f"Ward:{ward}", ward_number * 20
    for role, count in STAFF.items():
        for _ in range(count):
            person, number = _login(role, PEOPLE[number]), number + 1
            yield fact("works_on", person, role, place, TODAY_FROM, TODAY_TO)
            if role != "assistant":
                yield fact("has_role", person, "nurse" if role == "nurse" else "physician")
    for person, role, start, end in (  # who was here before, and who is to come
        (_login("nurse", PEOPLE[number]), "nurse", unix("2019-04-01"), unix("2023-10-01")),
        (_login("physician", PEOPLE[number + 1]), "physician", unix("2020-01-01"), unix("2022-07-01")),
        (_login("nurse", PEOPLE[number + 2]), "nurse", unix("2090-01-01"), unix("2095-01-01")),
    ):
        yield fact("works_on", person, role, place, start, end)


def _login(role: str, name: str) -> str:
    return f"User:dr-{name}" if role in ("head", "physician") else f"User:{name}"


def _patient(ward: str, number: str) -> Iterator[Fact]:
    patient = f"Patient:{number}"
    yield fact("has_relation", patient, "ward", f"Ward:{ward}")
    yield fact("has_relation", patient, "person", f"User:patient-{number}")
    if chance(30, patient, "specialist"):
        yield fact("has_relation", patient, "treated_by", f"User:dr-{pick(('yusuf', 'zelda', 'wilma'), patient)}")
    if chance(40, patient, "informed"):
        yield fact("is_informed", f"User:relative-{number}", patient)
    if chance(4, patient, "protected"):
        yield fact("is_protected", patient)
    if chance(8, patient, "talk"):
        yield fact("awaits_talk", patient)


def _stories() -> Iterator[Fact]:
    """Tell of nia, a nurse on b2 whose former husband lies there; dr-may heads b2; dr-er answers for emergencies."""
    for person, role in (("nia", "nurse"), ("dr-may", "physician"), ("dr-hart", "head")):
        yield fact("works_on", f"User:{person}", role, "Ward:b2", TODAY_FROM, TODAY_TO)
    yield fact("works_on", "User:noah", "nurse", "Ward:b2", unix("2018-01-01"), unix("2023-06-01"))
    for person in ("dr-may", "dr-hart", "dr-er"):
        yield fact("has_role", f"User:{person}", "physician")
    yield fact("has_relation", "Patient:pia", "ward", "Ward:b2")
    yield fact("has_relation", "Patient:pia", "person", "User:pia")
    yield fact("has_relation", "Patient:pia", "treated_by", "User:dr-psy")
    yield fact("is_protected", "Patient:pia")
    yield fact("is_informed", "User:son-of-pia", "Patient:pia")
    yield fact("has_relation", "Patient:paul", "ward", "Ward:b2")
    yield fact("has_relation", "Patient:paul", "person", "User:paul")
    yield fact("is_kept_out", "User:nia", "Patient:paul")
    yield fact("awaits_talk", "Patient:paul")
    yield fact("breaks_glass", "User:dr-er", "Patient:pia", until="2036-01-01T00:00:00Z")


EXAMPLE = Example(
    name="clinic",
    title="A hospital",
    about=(
        "Nurses, physicians and patients see different parts of the same records. Staff are assigned to a ward from one"
        " day to another. A patient's objection overrides everything except an emergency, in which a physician breaks"
        " the glass: a fact that expires by itself and stays in the history.\n\n"
        "Pia is protected: not even the physicians of her ward can read her diagnosis. Check who can, and why dr-er is"
        " among them."
    ),
    patterns=("field level", "time", "denial", "emergency access", "RBAC"),
    questions=(
        ExampleQuestion(
            "actions", "User:nia", "", "Patient:pia",
            (
                "bed.read", "contact.read", "contact.write", "medication.give", "medication.read", "name.read",
                "vitals.read", "vitals.write",
            ),
            "nurses see the parts of a record that they need for their work",
        ),
        ExampleQuestion(
            "who", "User", "diagnosis.read", "Patient:pia", ("dr-er", "dr-psy", "pia"),
            "she is protected: only her physician, she herself, and a physician in an emergency have access",
        ),
        ExampleQuestion(
            "authorize", "User:noah", "enter", "Ward:b2", False,
            "his assignment ended in 2023; the fact is still stored, but grants nothing",
        ),
        ExampleQuestion(
            "actions", "User:nia", "", "Patient:paul", (),
            "he has excluded her by name, which overrides her role",
        ),
        ExampleQuestion(
            "authorize", "User:paul", "diagnosis.read", "Patient:paul", False,
            "it is withheld until somebody has talked to him",
        ),
        ExampleQuestion(
            "list", "User:dr-er", "medication.read", "Patient", ("pia",),
            "the glass was broken for one patient only",
        ),
    ),
    write_facts=facts,
)  # fmt: skip
