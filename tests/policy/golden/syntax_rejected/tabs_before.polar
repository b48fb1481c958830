		p(x) if	x == y;
