"""The documentation: Markdown files from authz_project/docs, served publicly at /docs/.

* `library`   the list of pages, in order, and their URLs
* `markdown`  a page's text -> HTML with syntax highlighting, its headings, and its sections
* `views`     the pages and the search; imported at the first request for a page
"""
