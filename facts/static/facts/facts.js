// Progressive enhancement of the pages of facts: completion of ids, and a checkbox that selects a table's facts.
"use strict";

(() => {
  const form = document.getElementById("narrowing");
  const field = form && form.querySelector("[name=id]");
  const offered = document.getElementById("ids");
  const WAIT = 150; // milliseconds after the last key
  let waiting = 0;
  let asked = 0;

  async function complete() {
    const number = ++asked;
    const query = new URLSearchParams(new FormData(form));
    query.set("match", "begins");
    const answer = await fetch(`${form.dataset.ids}?${query}`, { headers: { Accept: "application/json" } });
    if (!answer.ok || number !== asked) return; // outdated: a later request was sent
    const { ids } = await answer.json();
    offered.replaceChildren(...ids.map((id) => Object.assign(document.createElement("option"), { value: id })));
  }

  if (field && offered && form.dataset.ids) {
    const soon = () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => complete().catch(() => {}), WAIT);
    };
    field.addEventListener("input", soon);
    for (const each of form.querySelectorAll("select")) each.addEventListener("change", soon);
  }

  for (const box of document.querySelectorAll("table.facts input.all")) {
    const others = () => box.closest("table").querySelectorAll("tbody input[name=selected]");
    box.hidden = false;
    box.addEventListener("change", () => others().forEach((each) => (each.checked = box.checked)));
    box.closest("table").addEventListener("change", () => {
      const all = [...others()];
      box.checked = all.every((each) => each.checked);
      box.indeterminate = !box.checked && all.some((each) => each.checked);
    });
  }
})();
