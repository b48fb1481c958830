"use strict";
// Conveniences only: the page does all of its work without them.
(() => {
  const form = document.getElementById("question");
  const [resource, action, text, fill] = ["id_resource", "id_action", "id_text", "fill"].map((id) => document.getElementById(id));
  let waiting;

  const suit = () => {
    const kind = form.elements.kind.value;
    resource.setAttribute("list", kind === "list" ? "types" : "resources");
    resource.placeholder = kind === "list" ? "Repo" : "Repo:anvil";
    resource.labels[0].textContent = kind === "list" ? "Resource type" : "Resource";
    action.disabled = kind === "actions";
    action.placeholder = kind === "actions" ? "any" : "read";
  };

  // The page has the first ids; what is being written brings those that go on like it.
  const complete = (input, list) => {
    clearTimeout(waiting);
    if (!input.value.includes(":")) return;
    waiting = setTimeout(async () => {
      const answer = await fetch(`${form.dataset.ids}?${new URLSearchParams({ start: input.value })}`);
      if (!answer.ok) return;
      const values = (await answer.json())[list] || [];
      document.getElementById(list).replaceChildren(...values.map((value) => Object.assign(document.createElement("option"), { value })));
    }, 150);
  };

  form.addEventListener("change", suit);
  document.getElementById("id_actor").addEventListener("input", (event) => complete(event.target, "actors"));
  resource.addEventListener("input", () => form.elements.kind.value !== "list" && complete(resource, "resources"));
  fill.hidden = false;
  fill.addEventListener("click", () => (text.value = text.dataset.source));
  suit();

  // Below a long text, the answer would be out of sight.
  const answer = document.querySelector(".answer");
  if (answer.querySelector("h2, .note") && answer.getBoundingClientRect().top > innerHeight * 0.7) answer.scrollIntoView();
})();
