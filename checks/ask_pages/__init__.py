"""The admin's pages for checking access.

`question` is a question as the address of its page has it, `answer` answers it, `links` leads from it to other pages,
and `pages` has what templates show.
"""
