// Asks everything that the published Node client can ask, and prints what it was answered as one JSON object.
// Arguments: the folder where the client is installed, the service's address, a key, and a file with data bindings.

import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const [folder, url, key, bindings] = process.argv.slice(2);
const { Oso, ParityHandle, typedVar } = createRequire(`${folder}/`)("oso-cloud");
const oso = new Oso(url, key);
const local = new Oso(url, key, { dataBindings: bindings });

const [ann, bob, cat] = ["ann", "bob", "cat"].map((id) => ({ type: "User", id }));
const acme = { type: "Organization", id: "acme" };
const [anvil, hammer, saw] = ["anvil", "hammer", "saw"].map((id) => ({ type: "Repository", id }));
const context = [["has_role", cat, "writer", anvil]];

const told = {};

async function refusal(asked) {
  try {
    await asked();
    return null;
  } catch (error) {
    return { status: error.statusCode ?? null, message: error.message };
  }
}

const plain = (answer) =>
  answer instanceof Map ? Object.fromEntries([...answer].map(([name, part]) => [name, plain(part)])) : answer;

// ---- policy and facts

await oso.policy(readFileSync(0, "utf8"));
told.metadata = await oso.getPolicyMetadata();
await oso.insert(["has_role", ann, "owner", acme]);
await oso.batch((batch) => {
  batch.insert(["has_role", bob, "writer", hammer]);
  batch.insert(["has_role", cat, "member", acme]);
  batch.delete(["has_role", cat, null, null]);
  batch.insert(["has_relation", anvil, "organization", acme]);
  batch.insert(["has_relation", hammer, "organization", acme]);
  batch.insert(["has_age", ann, 33]);
  batch.insert(["has_flag", ann, true]);
});
told.roles = await oso.get(["has_role", { type: "User" }, null, null]);
told.numbers = await oso.get(["has_age", ann, null]);
told.truths = await oso.get(["has_flag", ann, true]);
await oso.insert(["has_role", cat, "member", acme]);
await oso.delete(["has_role", cat, null, { type: "Organization" }]);
told.deleted = await oso.get(["has_role", cat, null, null]);

const ending = { predicate: "has_role", args: [cat, { type: "String", id: "owner" }, acme], expires_at: "2096-12-01T00:00:00Z" };
const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
await fetch(`${url}/api/facts`, { method: "POST", headers, body: JSON.stringify(ending) });
told.ending = [await oso.get(["has_role", cat, null, null]), await oso.authorize(cat, "read", anvil)];
await oso.insert(["has_role", cat, "owner", acme]);
told.lasting = await (await fetch(`${url}/api/facts?args.0.type=User&args.0.id=cat`, { headers })).json();
await oso.delete(["has_role", cat, null, null]);

// ---- questions

told.allowed = [
  await oso.authorize(ann, "read", anvil),
  await oso.authorize(ann, "write", anvil),
  await oso.authorize(cat, "write", anvil, context),
];
told.actions = [await oso.actions(bob, hammer), await oso.actions(cat, anvil, context)];
told.list = [await oso.list(ann, "read", "Repository"), await oso.list(cat, "write", "Repository", context)];
told.page = await oso.listPaginated(ann, "read", "Repository", 10000);

const handle = new ParityHandle();
handle.expect(true);
told.parity = await oso.authorize(ann, "read", anvil, { parityHandle: handle });

// ---- queries

const [user, action, repository] = [typedVar("User"), typedVar("String"), typedVar("Repository")];
const query = oso.buildQuery(["allow", user, action, repository]);
told.query = {
  whether: await oso.buildQuery(["allow", ann, "read", anvil]).evaluate(),
  values: await query.evaluate(user),
  tuples: await query.evaluate([user, repository]),
  map: plain(await query.evaluate(new Map([[user, new Map([[repository, action]])]]))),
  joined: await query.and(["has_role", user, "writer", repository]).evaluate(repository),
  narrowed: await query.in(user, ["ann", "nobody"]).evaluate(repository),
  context: await query.withContextFacts(context).in(user, ["cat"]).evaluate(action),
};

// ---- SQL for one's own tables

const asked = local.buildQuery(["allow", ann, "read", repository]);
told.sql = {
  authorize: await local.authorizeLocal(ann, "read", saw),
  actions: await local.actionsLocal(ann, saw),
  list: await local.listLocal(ann, "read", "Repository", "repository.id"),
  select: await asked.evaluateLocalSelect({ repository }),
  whether: await asked.evaluateLocalSelect(),
  filter: await asked.evaluateLocalFilter("id", repository),
};

// ---- what there is to ask

const methods = (made) => Object.getOwnPropertyNames(Object.getPrototypeOf(made)).filter((name) => name !== "constructor");
told.methods = [...methods(oso), ...methods(query)].filter((name) => !name.startsWith("_") && typeof (oso[name] ?? query[name]) === "function");

// ---- mistakes

told.refusals = {
  fact: await refusal(() => oso.insert(["no_such", ann])),
  policy: await refusal(() => oso.policy("actr User {}")),
  key: await refusal(() => new Oso(url, "e_default_no_body").authorize(ann, "read", anvil)),
};

process.stdout.write(JSON.stringify(told));
