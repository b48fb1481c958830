from django.contrib import admin
from django.contrib.auth.views import LoginView
from django.urls import include, path
from rest_framework.routers import DefaultRouter

from documents import views

router = DefaultRouter()
router.register("documents", views.Documents)
urlpatterns = [
    path("", views.index),
    path("documents/<int:pk>/", views.show, name="show"),
    path("documents/<int:pk>/edit/", views.edit, name="edit"),
    path("documents/<int:pk>/share/", views.share, name="share"),
    path("login/", LoginView.as_view(template_name="documents/login.html")),
    path("admin/", admin.site.urls),
    path("api/", include(router.urls)),
]
