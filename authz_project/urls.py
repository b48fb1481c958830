"""Every path. The interface is below /api; the rest is for people and load balancers."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

import checks.urls
import facts.urls
import localsql.urls
import policy.urls
from authz_project import views
from authz_project.openapi.views import Document, Page

# One flat list: each level of inclusion costs every request a few microseconds.
interface = [
    *checks.urls.urlpatterns,
    *facts.urls.urlpatterns,
    *policy.urls.urlpatterns,
    *localsql.urls.urlpatterns,
]
about = [
    path("", views.Hello.as_view()),
    path("healthcheck", views.Health.as_view()),
    path("openapi.json", Document.as_view()),
    path("docs", Page.as_view()),
]
urlpatterns = [
    path("api/", include([*interface, *about])),
    path("api", views.Hello.as_view()),
    path("healthcheck", views.Health.as_view()),
    path("test_environment", views.TestEnvironment.as_view()),
    path("admin", RedirectView.as_view(url="/admin/")),
    path("admin/", admin.site.urls),
]

handler400 = handler403 = handler404 = "authz_project.views.refused"
handler500 = "authz_project.views.broken"
