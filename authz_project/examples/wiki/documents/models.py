from django.conf import settings
from django.db import models


class Organization(models.Model):
    name = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    role = models.CharField(max_length=20)  # member, admin

    def __str__(self) -> str:
        return f"{self.user} {self.role}"


class Team(models.Model):
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE)
    name = models.CharField(max_length=100)
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, related_name="teams")

    def __str__(self) -> str:
        return self.name


class Project(models.Model):
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE)
    team = models.ForeignKey(Team, null=True, on_delete=models.SET_NULL)
    name = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.name


class Folder(models.Model):
    project = models.ForeignKey(Project, on_delete=models.CASCADE)
    parent = models.ForeignKey("self", null=True, blank=True, on_delete=models.CASCADE)
    name = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.name


class Document(models.Model):
    folder = models.ForeignKey(Folder, on_delete=models.CASCADE)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    title = models.CharField(max_length=200)
    text = models.TextField(blank=True)
    public = models.BooleanField(default=False, db_index=True)
    archived = models.BooleanField(default=False)
    changed = models.DateTimeField(auto_now=True, db_index=True)

    def __str__(self) -> str:
        return self.title


class Version(models.Model):
    document = models.ForeignKey(Document, on_delete=models.CASCADE)
    text = models.TextField()

    def __str__(self) -> str:
        return f"{self.pk}"


class Comment(models.Model):
    document = models.ForeignKey(Document, on_delete=models.CASCADE)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    text = models.TextField()

    def __str__(self) -> str:
        return self.text


class Tag(models.Model):
    name = models.CharField(max_length=50, unique=True)
    documents = models.ManyToManyField(Document, related_name="tags")

    def __str__(self) -> str:
        return self.name


class Attachment(models.Model):
    document = models.ForeignKey(Document, on_delete=models.CASCADE)
    name = models.CharField(max_length=200)

    def __str__(self) -> str:
        return self.name
