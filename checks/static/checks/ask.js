"use strict";
// Conveniences only: the page does all of its work without them.
(() => {
  const form = document.getElementById("question");
  const tried = document.getElementById("tried");
  let waiting;

  // The address has only what is filled, as it reads best.
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
  // A text is asked what the fields say, if they were changed since.
  tried?.addEventListener("submit", (event) => {
    if (!event.submitter?.hasAttribute("formaction")) tried.action = `${form.getAttribute("action")}?${filled()}`;
  });

  // The page has the first ids; what is being written brings those that go on like it.
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

  // What is copied is the text as it stands.
  for (const copy of document.querySelectorAll(".copy")) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "button", textContent: "Copy" });
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(copy.querySelector("code").textContent);
      button.textContent = "Copied";
    });
    if (navigator.clipboard) copy.querySelector("h3").append(button);
  }

  // Below a long form, on a phone, the answer would be out of sight.
  const answer = document.querySelector(".answer");
  if (answer.querySelector("h2, .note") && answer.getBoundingClientRect().top > innerHeight * 0.7) answer.scrollIntoView();
})();
