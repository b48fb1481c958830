"""The documents as pages: the Markdown files of authz_project/docs, served at /docs/ to everybody.

* `library`   which pages there are, in which order, and where
* `markdown`  a page's text -> HTML with coloured samples, its headings, and its sections
* `views`     the pages, and the search in them; it is imported with the first request for a page
"""
