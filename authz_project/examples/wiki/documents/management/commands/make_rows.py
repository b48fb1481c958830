"""Make users and rows: 10 organizations, and by default 200,000 documents and comments."""

from random import Random

from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import make_password
from django.core.management.base import BaseCommand
from django.utils import timezone

from documents.models import Comment, Document, Folder, Membership, Organization, Project, Team

User = get_user_model()


class Command(BaseCommand):
    help = "Make users (user0 …, password `wiki`) and rows."

    def add_arguments(self, parser):
        parser.add_argument("--rows", type=int, default=200_000, help="documents and comments (default: 200,000)")
        parser.add_argument("--users", type=int, default=1000, help="users (default: 1,000)")

    def handle(self, rows: int, users: int, **options):
        rng, password, now = Random(1), make_password("wiki"), timezone.now()
        names = [f"user{number}" for number in range(users)]
        people = User.objects.bulk_create([User(username=name, password=password) for name in names])
        organizations = Organization.objects.bulk_create([Organization(name=f"Organization {n}") for n in range(10)])
        members = [
            Membership(organization=organizations[n % 10], user=user, role="admin" if n < 10 else "member")
            for n, user in enumerate(people)
        ]
        Membership.objects.bulk_create(members)
        teams = Team.objects.bulk_create(
            [Team(organization=organizations[n % 10], name=f"Team {n}") for n in range(max(10, users // 20))]
        )
        through = Team.members.through
        through.objects.bulk_create([through(team=teams[n % len(teams)], user=user) for n, user in enumerate(people)])
        projects = Project.objects.bulk_create(
            [Project(organization=team.organization, team=team, name=f"Project of {team.name}") for team in teams]
        )
        tops = Folder.objects.bulk_create([Folder(project=project, name="Top") for project in projects])
        folders = Folder.objects.bulk_create(
            [Folder(project=top.project, parent=top, name=f"Folder {n}") for top in tops for n in range(5)]
        )
        documents = Document.objects.bulk_create(
            [
                Document(
                    folder=rng.choice(folders), author=rng.choice(people), title=f"Document {n}",
                    public=n % 100 == 0, archived=n % 50 == 1, changed=now,
                )
                for n in range(rows // 2)
            ],
            batch_size=5000,
        )  # fmt: skip
        Comment.objects.bulk_create(
            [Comment(document=document, author=document.author, text="Good.") for document in documents],
            batch_size=5000,
        )
        self.stdout.write(f"{len(people):,} users, {len(documents):,} documents and as many comments")
