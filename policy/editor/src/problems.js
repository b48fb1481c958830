// Problems and failed tests: marked in the text, and listed below it.
import { setDiagnostics } from "@codemirror/lint";
import { make, many, withCode } from "./page.js";

const section = document.getElementById("problems");
const state = section.querySelector(".state");
const count = section.querySelector(".count");
const list = section.querySelector("ol");
const SEVERITIES = { error: "error", warning: "warning", failure: "info" };
const MOST = 200;

/** Keeps the problems that the compiler and the tests report. */
export class Marks {
  constructor(view, jump) {
    this.view = view;
    this.jump = jump;
    this.problems = [];
    this.failures = [];
    this.lines = []; // of the list, in order
  }

  /** Show the compiler's results; offsets refer to the current text. */
  compiled(problems, amounts) {
    this.problems = problems;
    const told = amounts
      ? `Valid: ${many(amounts.types, "type")}, ${many(amounts.rules, "rule")}, ${many(amounts.tests, "test")}.`
      : "";
    if (state.textContent !== told) state.textContent = told;
    this.show();
  }

  /** Adjust to a change of the text. */
  moved(changes) {
    const move = (each) => ({ ...each, from: changes.mapPos(each.from, 1), to: changes.mapPos(each.to, -1) });
    this.problems = this.problems.map(move);
    this.failures = this.failures.map(move);
    for (const line of this.lines) line.each = move(line.each);
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
    this.list(all.slice(0, MOST));
  }

  /** List the problems. Lines of unchanged problems are kept, and so is the focus. */
  list(all) {
    const place = this.lines.findIndex(({ go }) => go === document.activeElement);
    const focused = this.lines[place];
    const spare = Map.groupBy(this.lines, ({ key }) => key);
    this.lines = all.map((each) => {
      const line = spare.get(keyOf(each))?.shift() ?? this.line(each);
      line.each = each;
      const at = this.position(each.from);
      const text = `line ${at.line}, column ${at.column}`;
      if (line.go.textContent !== text) line.go.textContent = text;
      return line;
    });
    for (const lines of spare.values()) for (const { item } of lines) item.remove();
    this.lines.forEach(({ item }, number) => {
      if (list.children[number] !== item) list.insertBefore(item, list.children[number] ?? null);
    });
    if (!focused) return;
    const next = this.lines.includes(focused) ? focused : this.lines.at(Math.min(place, this.lines.length - 1));
    (next ? next.go : this.view).focus();
  }

  line(each) {
    const go = make("button", { type: "button", class: "place", onclick: () => this.jump(line.each.from, line.each.to) });
    const line = { key: keyOf(each), each, go, item: make("li", { class: each.severity }, go, " ", told(each)) };
    return line;
  }

  position(place) {
    const line = this.view.state.doc.lineAt(Math.min(place, this.view.state.doc.length));
    return { line: line.number, column: [...line.text.slice(0, place - line.from)].length + 1 };
  }
}

const keyOf = (problem) => JSON.stringify([problem.severity, problem.message, problem.hint ?? ""]);

function told(problem) {
  const message = make("span", { class: "message" }, make("strong", {}, ...withCode(problem.message)));
  if (problem.hint) message.append(" ", make("em", {}, ...withCode(problem.hint)));
  return message;
}

