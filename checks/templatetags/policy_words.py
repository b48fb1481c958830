"""Values, facts and rules as HTML, with links to their pages, and links of the diagram."""

from django import template

from checks.ask_pages import links
from checks.compare import review_page
from checks.picture import drawing
from checks.picture.page import PictureRequest

register = template.Library()
register.simple_tag(links.atom_html)
register.simple_tag(links.value_html)
register.filter(links.highlighted)
register.filter(links.mentioned)
register.filter(review_page.shown_action)
register.simple_tag(PictureRequest.elsewhere)
register.filter(drawing.printable)
register.filter(drawing.shortened)
