// Saves drafts on the server, and in the browser until the server has them.
import { LoggedOut, SomebodyElse, ask, filename, form, later, make, textarea, timeOf, wasGivenUp } from "./page.js";

const WAIT = 1500; // milliseconds after the last key, before the draft is saved on the server
const LONGEST = 10_000; // while the user keeps typing
const AGAIN = 15_000; // retry interval after a failure
const KEY = `policy-draft:${form.dataset.person}:${form.elements.environment.value}`;
const saved = document.getElementById("saved");
const note = document.getElementById("kept");

/** Changes that only this browser has: made while the server was unreachable, or just before the page was left. */
function keptHere() {
  try {
    return JSON.parse(localStorage.getItem(KEY));
  } catch {
    return null;
  }
}

/** The initial text, and a message about it. */
export function textToBeginWith() {
  const kept = keptHere();
  const isAnother = new URLSearchParams(location.search).has("from");
  if (!kept || typeof kept.source !== "string" || kept.source === textarea.value || "sent" in form.dataset) return { text: textarea.value };
  return isAnother ? { text: textarea.value, offered: kept } : { text: kept.source, kept };
}

export class Drafts {
  /** `text` returns the current text, and `write` replaces it. */
  constructor(text, write) {
    this.text = text;
    this.write = write;
    this.known = text(); // the text that the server has
    this.since = null;
    this.saveSoon = later(WAIT, () => this.save());
    this.tryAgain = later(AGAIN, () => this.save());
    addEventListener("online", () => this.isUnsaved() && this.save());
    addEventListener("focus", () => this.failed && this.save());
    addEventListener("pagehide", () => this.keepHere());
    filename.addEventListener("input", () => this.changed());
  }

  isUnsaved() {
    return this.text() !== this.known || filename.value !== (this.knownFilename ?? filename.defaultValue);
  }

  changed() {
    if (this.isLeft) return;
    this.keepHereSoon ??= later(300, () => this.keepHere());
    this.keepHereSoon();
    this.since ??= Date.now();
    if (Date.now() - this.since > LONGEST) this.save();
    else this.saveSoon();
  }

  keepHere() {
    try {
      if (!this.isUnsaved()) return localStorage.removeItem(KEY);
      const { seen, stamp } = form.elements;
      localStorage.setItem(KEY, JSON.stringify({ source: this.text(), filename: filename.value, seen: seen.value, stamp: stamp.value, at: Date.now() }));
      this.isHere = true;
    } catch {
      this.isHere = false; // storage is full or disabled
    }
  }

  async save() {
    if (this.isLeft || !this.isUnsaved()) return;
    this.saveSoon.cancel();
    if (this.isSaving) return this.saveSoon();
    const [text, name] = [this.text(), filename.value];
    this.isSaving = true;
    try {
      const { seen, stamp } = form.elements;
      const told = await ask(form.dataset.draft, { source: text, filename: name, seen: seen.value, stamp: stamp.value });
      this.kept(text, name, told);
    } catch (reason) {
      this.notKept(reason);
    } finally {
      this.isSaving = false;
    }
  }

  kept(text, name, told) {
    [this.known, this.knownFilename, this.since, this.failed] = [text, name, null, false];
    form.elements.stamp.value = told.stamp ?? "";
    this.say(told.stamp ? `Draft saved ${timeOf(told.saved_at)}` : "Same as published");
    this.keepHere();
    if (this.isUnsaved()) this.saveSoon();
  }

  notKept(reason) {
    if (wasGivenUp(reason)) return;
    if (reason.answer?.other) return this.offerOther(reason.answer.other);
    this.failed = true;
    this.keepHere();
    const where = this.isHere ? "saved in this browser" : "not saved";
    if (reason instanceof SomebodyElse) this.say(`Another user is logged in now. Your draft is ${where}. Log in again in another window, then continue here.`);
    else if (reason instanceof LoggedOut) {
      const link = make("a", { href: form.dataset.login, target: "_blank" }, "Log in");
      this.say(`You are logged out. Your draft is ${where}. `, link, " in another window, then continue here.");
    } else if (reason.status) this.say(`Your draft is ${where} only: ${reason.message}`);
    else this.say(`No connection. Your draft is ${where}.`);
    this.tryAgain();
  }

  say(...told) {
    const isBad = this.failed;
    saved.classList.toggle("bad", Boolean(isBad));
    saved.replaceChildren(...told);
  }

  /** Another window saved a draft that this window has not loaded. */
  offerOther(other) {
    this.failed = false;
    this.keepHere();
    const take = () => {
      this.write(other.source);
      [this.known, form.elements.stamp.value] = [other.source, other.stamp];
      this.tell();
      this.keepHere();
      this.say(`Draft saved ${timeOf(other.saved_at)}`);
    };
    const stay = () => {
      form.elements.stamp.value = other.stamp;
      this.tell();
      this.save();
    };
    this.say("Your draft is saved in this browser only.");
    document.getElementById("drafted")?.remove(); // it names the same draft, or one that was overwritten
    this.tell(
      `You have a newer draft, saved ${timeOf(other.saved_at)}, which this page does not show.`,
      ["Open the newer draft", take], ["Keep this draft instead", stay],
    ); // prettier-ignore
  }

  /** Report that unsaved changes from this browser were restored. They are based on the draft with their own stamp. */
  tellRestored(kept, before) {
    if (kept.filename) filename.value = kept.filename;
    if (kept.seen) form.elements.seen.value = kept.seen;
    form.elements.stamp.value = kept.stamp;
    const back = () => {
      this.write(before);
      this.tell();
      this.keepHere();
    };
    this.known = before;
    this.tell(`Restored unsaved changes from ${timeOf(kept.at)} from this browser.`, ["Discard changes", back]);
    this.save();
  }

  tellOffered(kept) {
    const take = () => {
      this.write(kept.source);
      this.tell();
    };
    this.isLeft = true; // do not overwrite the offered draft until the user chooses
    const go = (act) => () => {
      this.isLeft = false;
      act();
      this.keepHere();
    };
    this.tell(
      `This browser has unsaved changes from ${timeOf(kept.at)}.`,
      ["Restore changes", go(take)], ["Discard changes", go(() => this.tell())],
    ); // prettier-ignore
  }

  tell(text, ...choices) {
    if (!text) return note.replaceChildren();
    const buttons = choices.map(([label, act]) => make("button", { type: "button", class: "button", onclick: act }, label));
    note.replaceChildren(make("div", { class: "note plain" }, make("p", {}, text), ...buttons));
  }

  /** The form was submitted: the server is responsible for the text from now on. */
  leave() {
    this.keepHere();
    this.isLeft = true;
    this.saveSoon.cancel();
    this.tryAgain.cancel();
  }
}
