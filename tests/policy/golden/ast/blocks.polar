actor User {}
actor Team { };;
resource Organization extends Tenant, Account, {
  roles = ["admin", "member",];
  permissions = [];
  permissions = ["repository.create", "GitHub staff", "user-name"];
  relations = { parent: Organization, owner: User, };
  relations = {};
  relations = { untyped };
  anything = ["goes"];
  here = { too: User };
}
resource Repo extends Organization {}
global {
  roles = ["staff"];
  "read" if "staff";
}
