"""An app of a project that is called like one of the engine's, and its model, too."""

from django.db import models


class Signature(models.Model):
    text = models.TextField()

    def __str__(self):
        return self.text
