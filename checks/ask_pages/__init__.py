"""The admin's pages for checking access.

`question` is a question as in the page's URL, `links` links it to other pages, and `pages` answers it and has the data
for templates.
"""
