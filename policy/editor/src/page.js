// Helpers for the page around the editor, and for requests to the server.

export const form = document.getElementById("editor");
export const textarea = document.getElementById("id_source");
export const filename = document.getElementById("id_filename");
const windowName = crypto.randomUUID?.() ?? String(Math.random());

/** Create an element with attributes and children. */
export function make(tag, attributes = {}, ...inside) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null) element.setAttribute(name, value);
  }
  element.append(...inside);
  return element;
}

/** Format a message, with text in backticks as code. */
export function withCode(message) {
  const pieces = message.split("`");
  if (pieces.length % 2 === 0) return [message];
  return pieces.map((piece, index) => (index % 2 ? make("code", {}, piece) : piece));
}

export const many = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

/** Format a time as on other pages: `2026-11-03T14:02Z`. */
export const timeOf = (time) => `${new Date(time).toISOString().slice(0, 16)}Z`;

/** A login in another window changes the token. */
function token() {
  const cookie = /(?:^|; )csrftoken=([^;]+)/.exec(document.cookie)?.[1];
  return cookie ?? form.elements.csrfmiddlewaretoken.value;
}

export class LoggedOut extends Error {}
export class SomebodyElse extends LoggedOut {} // another user than the one who opened the page is logged in
export class Refused extends Error {
  constructor(status, answer) {
    super(answer.message ?? `the server responded with status ${status}`);
    this.status = status;
    this.answer = answer;
  }
}

/** Send the text and other fields, and return the response; `signal` aborts. The user who opened the page is sent, too: the token is that of the current login. */
export async function ask(address, fields, signal) {
  const sent = new URLSearchParams({ environment: form.elements.environment.value, window: windowName, person: form.dataset.person });
  for (const [name, value] of Object.entries(fields)) sent.set(name, value ?? "");
  const answer = await fetch(address, {
    method: "POST",
    body: sent,
    headers: { "X-CSRFToken": token() },
    signal,
  });
  if (!answer.headers.get("Content-Type")?.startsWith("application/json")) {
    if (answer.redirected || answer.status === 403) throw new LoggedOut("you are logged out");
    throw new Refused(answer.status, {});
  }
  const told = await answer.json();
  if (told.somebody_else) throw new SomebodyElse(told.message);
  if (!answer.ok) throw new Refused(answer.status, told);
  if (told.overtaken) throw new DOMException("superseded by a later request", "AbortError");
  if (told.refused || told.other) throw new Refused(answer.status, { ...told, message: told.refused });
  return told;
}

/** The form data, with the current token. */
export function renewToken() {
  form.elements.csrfmiddlewaretoken.value = token();
}

export const wasGivenUp = (reason) => reason?.name === "AbortError";

/** Debounce: call after no further request for a while. */
export function later(milliseconds, act) {
  let timer = 0;
  const wait = (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...given), milliseconds);
  };
  wait.cancel = () => clearTimeout(timer);
  return wait;
}
