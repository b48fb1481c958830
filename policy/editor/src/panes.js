// Side panes: tabs with fragments that the server renders for the text.
import { LoggedOut, SomebodyElse, ask, filename, form, later, make, renewToken, wasGivenUp } from "./page.js";

const WAIT = 900; // milliseconds after the last key

export class Panes {
  /** `text` returns the current text; `isPolicy` whether it compiles. */
  constructor(text) {
    this.text = text;
    this.isPolicy = false;
    this.shown = new Map(); // the text that each pane was rendered for
    this.tabs = [...document.querySelectorAll(".beside [role=tab]")];
    this.askSoon = later(WAIT, () => this.refresh());
    const list = this.tabs[0].parentElement;
    list.addEventListener("click", (event) => this.choose(event.target.closest("[role=tab]")));
    list.addEventListener("keydown", (event) => this.move(event));
    for (const pane of this.remote()) pane.addEventListener("click", (event) => this.send(event.target.closest("[data-sends]")));
    const last = sessionStorage.getItem("policy-pane");
    const tab = this.tabs.find((each) => each.id === last);
    if (tab) this.choose(tab);
  }

  remote() {
    return this.tabs.map(paneOf).filter((pane) => pane.dataset.address);
  }

  choose(tab) {
    if (!tab) return;
    for (const each of this.tabs) {
      each.setAttribute("aria-selected", String(each === tab));
      paneOf(each).hidden = each !== tab;
    }
    sessionStorage.setItem("policy-pane", tab.id);
    this.refresh();
  }

  move(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = this.tabs.indexOf(document.activeElement);
    const next = Number.isFinite(step) ? (at + step + this.tabs.length) % this.tabs.length : step < 0 ? 0 : this.tabs.length - 1;
    this.tabs[next].focus();
    this.choose(this.tabs[next]);
  }

  /** Update after a change whether the text compiles. */
  compiled(isPolicy) {
    this.isPolicy = isPolicy;
    const pane = this.chosen();
    if (pane?.dataset.address && this.shown.get(pane) !== this.text()) this.say(pane, isPolicy ? "Updating…" : this.excuse(pane));
    if (isPolicy) this.askSoon();
  }

  excuse(pane) {
    return this.shown.has(pane) ? "The policy has errors. These results are for the last valid text." : "The policy has errors.";
  }

  chosen() {
    return this.remote().find((pane) => !pane.hidden);
  }

  async refresh() {
    const pane = this.chosen();
    const text = this.text();
    if (!pane || this.shown.get(pane) === text) return;
    if (!this.isPolicy) return this.say(pane, this.excuse(pane));
    this.giveUp?.abort();
    this.giveUp = new AbortController();
    this.say(pane, "Updating…");
    try {
      const { html } = await ask(pane.dataset.address, { source: text, filename: filename.value }, this.giveUp.signal);
      if (text !== this.text()) return;
      pane.querySelector(".shown").innerHTML = html;
      this.shown.set(pane, text);
      this.say(pane, "");
    } catch (reason) {
      if (wasGivenUp(reason)) return;
      if (reason instanceof SomebodyElse) return this.say(pane, "Another user is logged in now.");
      this.say(pane, reason instanceof LoggedOut ? "You are logged out." : `Update failed: ${reason.message}`);
    }
  }

  say(pane, text) {
    const state = pane.querySelector(".state");
    pane.classList.toggle("old", Boolean(text));
    if (state.textContent !== text) state.textContent = text;
  }

  /** Open a page about the text in a new window. */
  send(button) {
    if (!button) return;
    renewToken();
    const sending = make("form", { method: "post", action: button.dataset.sends, target: "_blank", hidden: true },
      make("input", { name: "csrfmiddlewaretoken", value: form.elements.csrfmiddlewaretoken.value }),
      make("textarea", { name: "text" }, this.text())); // prettier-ignore
    document.body.append(sending);
    sending.submit();
    sending.remove();
  }
}

const paneOf = (tab) => document.getElementById(tab.getAttribute("aria-controls"));
