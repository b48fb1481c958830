"""The admin site: the navigation around all pages, and the home page.

`navigation` has the links to other pages, `site` the console's own URLs, and `home` collects the contents of the home
page.
"""
