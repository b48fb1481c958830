// Tests: a run button beside each, with its result, and a list in a side pane.
import { RangeSet, StateEffect, StateField } from "@codemirror/state";
import { Decoration, EditorView, GutterMarker, WidgetType, gutter } from "@codemirror/view";
import { make, many } from "./page.js";

const HEAD = /^[ \t]*test[ \t]+("(?:[^"\\\n]|\\.)*")[ \t]*\{?/gm;
const NAMES = { n: "\n", r: "\r", t: "\t", 0: "\0" };

/** Find the tests: the name, and the start and end of the head of each. */
function testsIn(text) {
  return Array.from(text.matchAll(HEAD), (found) => ({
    name: found[1].slice(1, -1).replace(/\\(.)/g, (_, char) => NAMES[char] ?? char),
    from: found.index,
    to: found.index + found[0].length,
  }));
}

const came = StateEffect.define(); // results by name, and whether they are complete
const begun = StateEffect.define(); // the names of running tests

const outcomes = StateField.define({
  create: (state) => ({ tests: testsIn(state.doc.toString()), results: new Map(), running: new Set() }),
  update(value, transaction) {
    if (transaction.docChanged) {
      const moved = (each) => ({ ...each, from: transaction.changes.mapPos(each.from, 1), to: transaction.changes.mapPos(each.to, -1) });
      const results = new Map([...value.results].map(([name, one]) => [name, { ...one, failures: one.failures.map(moved), isOld: true }]));
      value = { ...value, tests: testsIn(transaction.newDoc.toString()), results };
    }
    for (const effect of transaction.effects) {
      if (effect.is(begun)) value = { ...value, running: new Set(effect.value) };
      if (effect.is(came)) {
        const kept = effect.value.areAll ? [] : value.results;
        value = { ...value, running: new Set(), results: new Map([...kept, ...effect.value.results]) };
      }
    }
    return value;
  },
  provide: (field) => EditorView.decorations.from(field, decorationsOf),
});

class Mark extends GutterMarker {
  constructor(name, state) {
    super();
    this.name = name;
    this.state = state;
  }
  eq(other) {
    return other.name === this.name && other.state === this.state;
  }
  toDOM() {
    const title = `Run the test “${this.name}”`;
    return make("span", { class: `run ${this.state}`, title, "data-name": this.name }); // by keyboard: Ctrl+Enter
  }
}

class Told extends WidgetType {
  constructor(text, state) {
    super();
    this.text = text;
    this.state = state;
  }
  eq(other) {
    return other.text === this.text && other.state === this.state;
  }
  toDOM() {
    return make("span", { class: `outcome-of-test ${this.state}` }, this.text);
  }
}

function stateOf({ results, running }, name) {
  if (running.has(name)) return "running";
  const result = results.get(name);
  if (!result) return "unknown";
  return `${result.failures.length ? "fails" : "passes"}${result.isOld ? " old" : ""}`;
}

const toldOf = (result) =>
  result.failures.length
    ? `${result.failures.length} of ${many(result.total, "assertion")} failed`
    : `${many(result.total, "assertion")} hold${result.total === 1 ? "s" : ""}`;

function decorationsOf(value) {
  const found = [];
  for (const test of value.tests) {
    const result = value.results.get(test.name);
    if (!result) continue;
    found.push(Decoration.widget({ widget: new Told(toldOf(result), stateOf(value, test.name)), side: 1 }).range(test.to));
    for (const each of result.isOld ? [] : result.failures)
      if (each.from >= test.to) found.push(Decoration.widget({ widget: new Told(each.message, "fails"), side: 2 }).range(each.to));
  }
  return Decoration.set(found, true);
}

/** The state field, and the buttons in the gutter; `run` gets the offset of a test. */
export function testGutter(run) {
  return [
    outcomes,
    gutter({
      class: "cm-tests",
      markers: (view) => {
        const value = view.state.field(outcomes);
        return RangeSet.of(
          value.tests.map((test) => new Mark(test.name, stateOf(value, test.name)).range(view.state.doc.lineAt(test.from).from)),
          true,
        );
      },
      initialSpacer: () => new Mark("", "unknown spacer"),
      domEventHandlers: {
        click(view, line, event) {
          const name = event.target.dataset?.name;
          const test = view.state.field(outcomes).tests.find((each) => each.name === name && each.from >= line.from && each.from <= line.to);
          if (test) run(test);
          return Boolean(test);
        },
      },
    }),
  ];
}

/** Return the test at the offset, if any: it extends from its head to the next one. */
export function testAt(state, place) {
  const { tests } = state.field(outcomes);
  const line = state.doc.lineAt(place);
  return tests.findLast((test) => test.from <= line.to) ?? null;
}

export const allTests = (state) => state.field(outcomes).tests;

export function tellBegun(view, names) {
  view.dispatch({ effects: begun.of(names) });
}

export function tellOutcomes(view, results, areAll) {
  view.dispatch({ effects: came.of({ results: results.map((one) => [one.name, { ...one, isOld: false }]), areAll }) });
}

// ---- side pane ------------------------------------------------------------------------------------------------------

const pane = document.getElementById("pane-tests");
const shown = pane.querySelector(".shown");
const said = pane.querySelector(".state");
const count = document.querySelector("#tab-tests .count");

/** List all tests with their results, failed ones first. Buttons look up where a test is when they are clicked: the text may have changed since. */
export function showTests(view, { run, jump, note = "" }) {
  const value = view.state.field(outcomes);
  const now = {
    test: (name) => allTests(view.state).find((each) => each.name === name),
    failure: (name, number) => view.state.field(outcomes).results.get(name)?.failures[number],
  };
  const all = value.tests.map((test) => ({ test, result: value.results.get(test.name) }));
  const failing = all.filter(({ result }) => result?.failures.length);
  count.textContent = failing.length ? `${failing.length} of ${all.length} failed` : all.length ? String(all.length) : "";
  count.className = `count pill ${failing.length ? "bad" : all.every(({ result }) => result) ? "good" : ""}`;
  count.hidden = !all.length;
  const known = all.filter(({ result }) => result).length;
  const sum = all.length ? (known ? summary(failing.length, known) : "Not run yet.") : "This policy has no tests.";
  const areOld = known && all.every(({ result }) => !result || result.isOld);
  const text = note || (areOld ? `${sum} The policy has changed since.` : sum);
  if (said.textContent !== text) said.textContent = text;
  const focused = document.activeElement?.closest?.("#pane-tests [data-test]")?.dataset.test;
  const others = all.filter((each) => !failing.includes(each));
  shown.replaceChildren(make("ol", { class: "tests" }, ...[...failing, ...others].map((each) => lineOf(value, each, run, jump, now))));
  if (focused !== undefined) shown.querySelector(`[data-test="${CSS.escape(focused)}"] button`)?.focus();
}

const summary = (failing, all) => (failing ? `${failing} of ${many(all, "test")} failed.` : `${all === 1 ? "The test passed" : `All ${all} tests passed`}.`);

function lineOf(value, { test, result }, run, jump, now) {
  const item = make("li", { class: stateOf(value, test.name), "data-test": test.name },
    make("button", { type: "button", class: "run", "aria-label": `Run the test “${test.name}”`, title: "Run this test", onclick: () => run(now.test(test.name)) }),
    make("button", { type: "button", class: "place", onclick: () => jump(now.test(test.name)) }, test.name),
    make("span", { class: "quiet" }, result ? toldOf(result) : "not run")); // prettier-ignore
  if (result?.failures.length) {
    item.append(make("ul", {}, ...result.failures.map((each, number) =>
      make("li", {}, make("button", { type: "button", class: "place", onclick: () => jump(now.failure(test.name, number)) }, each.text), make("span", {}, each.message),
        ...(each.explanation?.length ? [make("pre", { class: "why", tabindex: "0" }, each.explanation.join("\n"))] : []))))); // prettier-ignore
  }
  return item;
}

