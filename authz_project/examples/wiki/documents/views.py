from django import forms
from django.contrib.auth import get_user_model
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from rest_framework.serializers import ModelSerializer
from rest_framework.viewsets import ModelViewSet

from localsql.django import Permitted, PermittedFilter, facts, permitted, requires, who

from documents.models import Comment, Document, Folder


class DocumentForm(forms.ModelForm):
    class Meta:
        model = Document
        fields = ["title", "text", "folder"]

    def __init__(self, user, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.fields["folder"].queryset = Folder.objects.filter(permitted(user, "edit", Folder))


def index(request: HttpRequest) -> HttpResponse:
    documents = Document.objects.filter(permitted(request.user, "read", Document))
    documents = documents.annotate(may_edit=permitted(request.user, "edit", Document)).order_by("-changed", "-pk")
    return render(request, "documents/index.html", {"documents": documents[:20]})


@requires("read", Document)
def show(request: HttpRequest, pk: int) -> HttpResponse:
    document = Document.objects.get(pk=pk)
    comments = Comment.objects.filter(permitted(request.user, "read", Document, column="document"), document=document)
    readers = who("read", document).order_by("username")[:20]
    return render(request, "documents/show.html", {"document": document, "comments": comments, "readers": readers})


@requires("edit", Document)
def edit(request: HttpRequest, pk: int) -> HttpResponse:
    document = Document.objects.get(pk=pk)
    form = DocumentForm(request.user, request.POST or None, instance=document)
    if form.is_valid():
        form.save()
        return redirect("show", pk)
    return render(request, "documents/edit.html", {"document": document, "form": form})


@requires("edit", Document)
def share(request: HttpRequest, pk: int) -> HttpResponse:
    reader = get_user_model().objects.get(username=request.POST["username"])
    facts.insert(("has_role", reader, "viewer", Document.objects.get(pk=pk)))
    return redirect("show", pk)


class DocumentSerializer(ModelSerializer):
    class Meta:
        model = Document
        fields = ["id", "title", "text", "folder"]


class Documents(ModelViewSet):
    queryset = Document.objects.order_by("pk")
    serializer_class = DocumentSerializer
    permission_classes = [Permitted]
    filter_backends = [PermittedFilter]
    permitted_actions = {"create": ("edit", Folder, "folder")}

    def perform_create(self, serializer):
        serializer.save(author=self.request.user)
