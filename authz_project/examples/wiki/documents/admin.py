from django.contrib import admin

from localsql.django import PermittedAdmin

from documents.models import Document


@admin.register(Document)
class DocumentAdmin(PermittedAdmin, admin.ModelAdmin):
    list_display = ["title", "author", "public"]
    raw_id_fields = ["folder", "author"]
