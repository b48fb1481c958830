actor actor {}
resource resource extends actor, extends, {
  relations = { actor: actor, resource: resource, global: global, test: test, role: role, type: type };
  roles = ["role"];
  "x" if global(resource) and global "y" and global = 3;
}
actor(actor: actor, resource: resource, global, extends, declare, type, test, fixture, setup, assert, assert_not);
resource(x) if actor matches actor and role matches Role and permission = new;
global(x) if extends(x) and declare(x) and type(x) and test(x) and fixture(x) and setup(x) and assert(x);
extends(x); declare(x); type(x); test(x); fixture(x); setup(x); assert(x); assert_not(x);
roles(roles); permissions(permissions); relations(relations); role(role); permission(permission); new(new);
declare declare(declare, type);
test fixture fixture { fixture(1); fixture fixture; }
test "words" { setup { setup(1); fixture setup; test(2); assert(3); } assert assert(1); assert_not assert_not(1); }
