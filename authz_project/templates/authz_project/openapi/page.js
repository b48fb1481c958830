"use strict";

// On a phone, the list of endpoints is folded.
const narrow = matchMedia("(max-width: 52rem)");
const fold = () => { document.querySelector("nav details").open = !narrow.matches; };
narrow.addEventListener("change", fold);
fold();

const key = document.getElementById("key");

for (const article of document.querySelectorAll("article")) {
  article.querySelector("button").addEventListener("click", () => send(article));
}

async function send(article) {
  const { method, path } = article.dataset;
  const query = article.querySelector(".query");
  const body = article.querySelector("textarea");
  const headers = key.value ? { Authorization: `Bearer ${key.value.trim()}` } : {};
  if (body) headers["Content-Type"] = "application/json";
  const started = performance.now();
  try {
    const target = query && query.value ? `${path}?${query.value}` : path;
    const answer = await fetch(target, { method, headers, body: body ? body.value : undefined, credentials: "omit" });
    const took = Math.round(performance.now() - started);
    show(article, `${answer.status} ${answer.statusText}, ${took} ms\n\n${pretty(await answer.text())}`);
  } catch (error) {
    show(article, `Request failed: ${error.message}`);
  }
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function show(article, text) {
  const shown = document.createElement("pre");
  shown.textContent = text;
  article.querySelector("output").replaceChildren(shown);
}
