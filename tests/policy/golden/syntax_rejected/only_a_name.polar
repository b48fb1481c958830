allow
