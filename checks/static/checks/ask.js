"use strict";
// Enhancements only: the page works without JavaScript.
(() => {
  const form = document.getElementById("question");
  const tried = document.getElementById("tried");
  let waiting;

  // Only nonempty fields go into the URL, in readable form.
  const filled = () => {
    const chosen = [...new FormData(form)].filter(([name, value]) => value.trim() && !(name === "version" && unmoved(name)));
    return new URLSearchParams(chosen.map(([name, value]) => [name, value.trim()])).toString()
      .replace(/%3A/g, ":").replace(/%2F/g, "/").replace(/%40/g, "@").replace(/%2C/g, ",").replace(/%28/g, "(").replace(/%29/g, ")").replace(/\+/g, "%20");
  };
  const unmoved = (name) => [...form.elements[name].options].every((each) => each.selected === each.defaultSelected);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    location.assign(`${form.getAttribute("action")}?${filled()}`);
  });
  // A draft is checked with the current values of the fields.
  tried?.addEventListener("submit", (event) => {
    if (!event.submitter?.hasAttribute("formaction")) tried.action = `${form.getAttribute("action")}?${filled()}`;
  });

  // The page contains the first ids; those with the typed prefix are fetched.
  const complete = (input, list) => {
    clearTimeout(waiting);
    if (!input.value.includes(":")) return;
    waiting = setTimeout(async () => {
      const answer = await fetch(`${form.dataset.ids}?${new URLSearchParams({ start: input.value })}`);
      if (!answer.ok) return;
      const values = (await answer.json())[list] || [];
      document.getElementById(list)?.replaceChildren(...values.map((value) => Object.assign(document.createElement("option"), { value })));
    }, 150);
  };
  for (const input of form.querySelectorAll("input[list=actors], input[list=resources]")) {
    input.addEventListener("input", () => complete(input, input.getAttribute("list")));
  }

  // Copy the text unchanged.
  for (const copy of document.querySelectorAll(".copy")) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "button", textContent: "Copy" });
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(copy.querySelector("code").textContent);
      button.textContent = "Copied";
    });
    if (navigator.clipboard) copy.querySelector("h3").append(button);
  }

  // Scroll to the answer: on a phone it would be hidden below the long form.
  const answer = document.querySelector(".answer");
  if (answer.querySelector("h2, .note") && answer.getBoundingClientRect().top > innerHeight * 0.7) answer.scrollIntoView();
})();
