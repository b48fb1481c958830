actor User {}



	resource Repo	{
		roles = ["a"];	# tab	


		"a" if "b" on "c";

	}
﻿p(x)	if	q(x);

# end 	 

