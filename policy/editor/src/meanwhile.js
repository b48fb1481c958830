// Reports versions that other users published meanwhile; the draft is kept.
import { ask, form, make } from "./page.js";

const LOOK = 20_000; // milliseconds
const place = document.getElementById("meanwhile");

export class Meanwhile {
  constructor() {
    this.told = null; // the version that was reported last
    if (place.querySelector(".meanwhile") && !("sent" in form.dataset)) this.offer(place.querySelector(".meanwhile").dataset.active);
    setInterval(() => document.visibilityState === "visible" && this.look(), LOOK);
    addEventListener("focus", () => this.look());
  }

  /** Compare with the active version that another response reported. */
  heard(active) {
    if (String(active ?? "") !== form.elements.seen.value && String(active) !== this.told) this.look();
  }

  async look() {
    if (this.isLooking) return;
    this.isLooking = true;
    try {
      const { html, active } = await ask(form.dataset.meanwhile, { seen: form.elements.seen.value });
      if (!html || String(active) === this.told) return;
      place.innerHTML = html;
      place.firstElementChild.setAttribute("role", "alert");
      this.offer(String(active));
    } catch {
      // connection errors are shown with the draft
    } finally {
      this.isLooking = false;
    }
  }

  offer(active) {
    this.told = active;
    const agree = () => {
      form.elements.seen.value = active;
      place.replaceChildren(make("p", { class: "note plain", role: "status" }, `“Publish” will replace version ${active} with your draft.`));
    };
    place.querySelector(".meanwhile").append(make("button", { type: "button", class: "button", onclick: agree }, "Replace it with my draft"));
  }
}
