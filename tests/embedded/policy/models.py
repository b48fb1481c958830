"""Another app that is called like one of the engine's; it has no migrations."""

from django.db import models


class Environment(models.Model):
    text = models.TextField()

    def __str__(self):
        return self.text
