has_role(User{`alice`});
