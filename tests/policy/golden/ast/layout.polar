actor User{}resource Repo{roles=["a"];"a"if"b"on"c";}p(x)if x=1 and y<-1or not z(1);

	q
(
x
:
T
)
;