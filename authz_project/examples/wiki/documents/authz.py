from localsql.django import bind

from documents.models import Document, Folder, Membership, Project, Team

bind("has_role(User:_, String:_, Organization:_)", Membership.objects.values_list("user_id", "role", "organization_id"))
bind("has_role(User:_, member, Team:_)", Team.members.through.objects.values_list("user_id", "team_id"))
bind("has_relation(Project:_, organization, Organization:_)", Project.objects.values_list("pk", "organization_id"))
bind("has_relation(Project:_, team, Team:_)", Project.objects.values_list("pk", "team_id"))
bind("has_relation(Folder:_, project, Project:_)", Folder.objects.values_list("pk", "project_id"))
bind("has_relation(Folder:_, parent, Folder:_)", Folder.objects.values_list("pk", "parent_id"))
bind("has_relation(Document:_, folder, Folder:_)", Document.objects.values_list("pk", "folder_id"))
bind("has_relation(Document:_, author, User:_)", Document.objects.values_list("pk", "author_id"))
bind("is_public(Document:_)", Document.objects.filter(public=True).values_list("pk"))
bind("is_archived(Document:_)", Document.objects.filter(archived=True).values_list("pk"))
