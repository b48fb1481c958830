"""The admin's pages for checking access.

`question` is a question as in the page's URL, `answer` answers it, `links` links it to other pages, and `pages` has the
data for templates.
"""
