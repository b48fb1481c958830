p(User{""}) if x in ["", Team{""}];
