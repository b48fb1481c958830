p(x) if q(x)
# no more
