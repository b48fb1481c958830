// Problems and failed tests: marked in the text, and listed below it.
import { setDiagnostics } from "@codemirror/lint";
import { make, many, withCode } from "./page.js";

const section = document.getElementById("problems");
const state = section.querySelector(".state");
const count = section.querySelector(".count");
const list = section.querySelector("ol");
const SEVERITIES = { error: "error", warning: "warning", failure: "info" };
const MOST = 200;

/** Keeps what is wrong with the text, from the compiler and from tests. */
export class Marks {
  constructor(view, jump) {
    this.view = view;
    this.jump = jump;
    this.problems = [];
    this.failures = [];
  }

  /** Take up the compiler's answer; places are of the text as it is now. */
  compiled(problems, amounts) {
    this.problems = problems;
    const told = amounts
      ? `This is a policy: ${many(amounts.types, "type")}, ${many(amounts.rules, "rule")}, ${many(amounts.tests, "test")}.`
      : "";
    if (state.textContent !== told) state.textContent = told;
    this.show();
  }

  /** Follow a change of the text. */
  moved(changes) {
    const move = (each) => ({ ...each, from: changes.mapPos(each.from, 1), to: changes.mapPos(each.to, -1) });
    this.problems = this.problems.map(move);
    this.failures = this.failures.map(move);
  }

  failed(failures) {
    this.failures = failures;
    this.show();
  }

  show() {
    const length = this.view.state.doc.length;
    const all = [...this.problems, ...this.failures].sort((one, other) => one.from - other.from);
    const marks = all.map((each) => {
      const from = Math.min(each.from, length);
      return { from, to: Math.max(from, Math.min(each.to, length)), severity: SEVERITIES[each.severity],
        markClass: `marked-${each.severity}`, message: each.message, renderMessage: () => told(each) }; // prettier-ignore
    });
    this.view.dispatch(setDiagnostics(this.view.state, marks));
    count.textContent = all.length ? String(all.length) : "";
    count.className = `count pill ${this.problems.some((each) => each.severity === "error") ? "bad" : "warn"}`;
    count.hidden = !all.length;
    const focused = [...list.querySelectorAll(".place")].indexOf(document.activeElement);
    list.replaceChildren(...all.slice(0, MOST).map((each) => this.line(each)));
    if (focused >= 0) [...list.querySelectorAll(".place")].slice(0, focused + 1).pop()?.focus();
  }

  line(each) {
    const { line, column } = this.position(each.from);
    const go = make("button", { type: "button", class: "place", onclick: () => this.jump(each.from, each.to) }, `line ${line}, column ${column}`);
    return make("li", { class: each.severity }, go, " ", told(each));
  }

  position(place) {
    const line = this.view.state.doc.lineAt(Math.min(place, this.view.state.doc.length));
    return { line: line.number, column: [...line.text.slice(0, place - line.from)].length + 1 };
  }
}

function told(problem) {
  const message = make("span", { class: "message" }, make("strong", {}, ...withCode(problem.message)));
  if (problem.hint) message.append(" ", make("em", {}, ...withCode(problem.hint)));
  return message;
}

