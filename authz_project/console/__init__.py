"""The admin as one product: what stands around all pages, and the page that one comes to first.

`navigation` says where one can go from a page, `site` has the addresses that are the console's own, and `home` gathers
what the first page shows.
"""
