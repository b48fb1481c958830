"""The samples about moving run as they stand, with a second environment in place of the hosted product."""

import re

from tests.reader import page_of, reading, sections

PAGE = page_of("moving.md")
RUN = ("From the hosted product", "From SpiceDB", "From OpenFGA")
HOSTED = "https://api.osohq.com"
FACTS = """
has_role,User,ann,String,admin,Organization,acme
has_role,User,ben,String,member,Organization,acme
is_partner,User,cat,Organization,acme
"""


def test_the_samples_about_moving(tmp_path):
    with reading(tmp_path) as reader:
        reader.elsewhere[HOSTED] = reader.service.origin
        reader.variables["OSO_AUTH"] = hosted_key(reader)
        found = sections(PAGE)
        reader.follow([sample for title in RUN for sample in found[title]])
        shown = next(text for language, text in found["From OpenFGA"] if language == "polar")
        assert (reader.folder / "office" / "policy.polar").read_text() == shown


def hosted_key(reader) -> str:
    """Of an environment that has the policy and facts already."""
    policy = re.search(r"cat > policy.polar <<'END'\n.*?^END$", PAGE, re.DOTALL | re.MULTILINE)[0]
    (reader.folder / "hosted.csv").write_text(FACTS.lstrip())
    printed = reader.shell(f"""
authz api_keys create --environment hosted --create-environment
{policy}
authz load_policy policy.polar --environment hosted
authz load_facts hosted.csv --format csv --environment hosted
""")
    return re.search(r"e_hosted_\w+", printed)[0]


def test_every_sample_that_can_be_run_is_run():
    others = {language for title, samples in sections(PAGE).items() if title not in RUN for language, _ in samples}
    assert not others & {"sh", "python"}
