"""The documents as pages: the Markdown files of authz_project/docs, served at /docs/ to everybody.

library     which pages there are, in which order
markdown    a page's text -> HTML, its headings, and its sections for the search
colours     words of samples -> spans
search      words -> the sections that have them
views       what is served
paths       where; all of the above is imported with the first request for a page
"""
