p(Integer{"three"}, Integer{"1.0"}, Boolean{1}, Boolean{"yes"});
