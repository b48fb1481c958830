actor User {}
2fa_enabled(_: User);
