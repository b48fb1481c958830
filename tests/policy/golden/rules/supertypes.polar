actor User {}
actor Admin extends User {}
resource Container { roles = ["reader"]; permissions = ["read"]; relations = { parent: Container, owner: User }; "read" if "reader"; role if role on "parent"; }
resource Folder extends Container { permissions = ["list"]; "list" if "reader"; "reader" if "owner"; "list" if "read" on "parent"; }
resource Doc extends Container, Sealed {}
resource Sealed { permissions = ["seal"]; }
open(x: Container) if is_open(x);
only(x) if x matches! Container and is_open(x);
has_role(user: User, "reader", any: Resource) if everything(user, any);
