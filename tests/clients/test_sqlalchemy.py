"""The published add-on for SQLAlchemy, with real models on PostgreSQL: its filters select the right rows."""

from uuid import uuid4

import pytest
import sqlalchemy_oso_cloud
from oso_cloud import Value
from sqlalchemy import ForeignKey, create_engine, func
from sqlalchemy import select as plain_select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy_oso_cloud import Session, authorized, oso, select
from sqlalchemy_oso_cloud.orm import Resource, attribute, relation, remote_relation

POLICY = """
actor User {}

resource Organization {
  roles = ["admin", "member"];
}

resource Document {
  permissions = ["read", "write"];
  relations = { organization: Organization };
  roles = ["author"];

  "read" if "author";
  "write" if "author";
  "read" if "admin" on "organization";
  "read" if "member" on "organization" and has_status(resource, "published");
  "read" if is_public(resource);
  "write" if "admin" on "organization" and has_level(resource, 3);
}

resource Chunk {
  permissions = ["read"];
  relations = { document: Document };
  "read" if "read" on "document";
}
"""


class Base(DeclarativeBase):
    pass


class Document(Base, Resource):
    __tablename__ = "document"
    id: Mapped[int] = mapped_column(primary_key=True)
    organization_id: Mapped[str | None] = remote_relation(remote_resource_name="Organization")
    status: Mapped[str] = attribute()
    level: Mapped[int] = attribute()
    is_public: Mapped[bool] = attribute()
    chunks: Mapped[list["Chunk"]] = relation(back_populates="document")  # of which the policy says nothing


class Chunk(Base, Resource):
    __tablename__ = "chunk"
    id: Mapped[int] = mapped_column(primary_key=True)
    document_id: Mapped[int] = mapped_column(ForeignKey("document.id"))
    document: Mapped["Document"] = relation(back_populates="chunks")


ANN, BOB, CAT, DAN = (Value("User", name) for name in ("ann", "bob", "cat", "dan"))
ACME = Value("Organization", "acme")
DOCUMENTS = [
    Document(id=1, organization_id="acme", status="published", level=1, is_public=False),
    Document(id=2, organization_id="acme", status="draft", level=3, is_public=False),
    Document(id=3, organization_id="evil", status="draft", level=1, is_public=True),
    Document(id=4, organization_id=None, status="published", level=1, is_public=False),
]


@pytest.fixture
def session(service, database_urls, monkeypatch):
    """Roles are with the service, documents in the caller's database. The add-on keeps one client for a process."""
    client = service.fresh_client()
    monkeypatch.setattr(oso, "oso", None)
    sqlalchemy_oso_cloud.init(Base.registry, url=client.origin, api_key=client.key)
    known = sqlalchemy_oso_cloud.get_oso()
    known.policy(POLICY)
    with known.batch() as batch:
        batch.insert(("has_role", ANN, "admin", ACME))
        batch.insert(("has_role", BOB, "member", ACME))
        batch.insert(("has_role", CAT, "author", Value("Document", "4")))
    url = database_urls("postgresql", f"models-{uuid4()}").replace("postgres://", "postgresql+psycopg://")
    engine = create_engine(url)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        columns = [column.key for column in Document.__table__.columns]
        session.add_all([Document(**{name: getattr(each, name) for name in columns}) for each in DOCUMENTS])
        session.add_all([Chunk(id=10 * each.id, document_id=each.id) for each in DOCUMENTS])
        session.commit()
        yield session
    engine.dispose()


def ids(found) -> list[int]:
    return sorted(each.id for each in found)


@pytest.mark.parametrize(
    ("user", "readable", "writable"),
    [(ANN, [1, 2, 3], [2]), (BOB, [1, 3], []), (CAT, [3, 4], [4]), (DAN, [3], [])],
    ids=lambda each: getattr(each, "id", None),
)
def test_a_select_finds_what_is_allowed(session, user, readable, writable):
    assert ids(session.scalars(select(Document).authorized(user, "read"))) == readable
    assert ids(session.scalars(select(Document).authorized(user, "write"))) == writable
    assert ids(session.scalars(select(Chunk).authorized(user, "read"))) == [10 * each for each in readable]
    assert ids(session.query(Document).authorized(user, "read")) == readable


def test_an_unknown_action_finds_nothing(session):
    assert session.scalars(select(Document).authorized(ANN, "frob")).all() == []


def test_the_filter_goes_with_other_conditions(session):
    drafts = select(Document).where(Document.status == "draft").order_by(Document.id.desc()).authorized(ANN, "read")
    assert [each.id for each in session.scalars(drafts)] == [3, 2]
    assert [each.id for each in session.scalars(drafts.limit(1))] == [3]
    options = plain_select(Document).where(Document.level < 3).options(authorized(BOB, "read", Document))
    assert ids(session.scalars(options)) == [1, 3]


def test_the_filter_goes_with_joins_and_counts(session):
    joined = select(Chunk).join(Chunk.document).where(Document.status == "published").authorized(ANN, "read")
    assert ids(session.scalars(joined)) == [10]
    counted = plain_select(func.count(Document.id)).options(authorized(ANN, "read", Document))
    assert session.scalar(counted) == 3


def test_an_attribute_that_changes_counts_at_once(session):
    session.get(Document, 1).status = "draft"
    session.flush()
    assert ids(session.scalars(select(Document).authorized(BOB, "read"))) == [3]
