from django.contrib import admin

from tests.embedded.facts.models import Signature

admin.site.register(Signature)
