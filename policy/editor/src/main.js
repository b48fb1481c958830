// The policy editor. It replaces the text area, which works without JavaScript.
import { closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { bracketMatching, foldGutter, foldKeymap, foldService, indentOnInput, indentUnit } from "@codemirror/language";
import { lintGutter, lintKeymap } from "@codemirror/lint";
import { gotoLine, highlightSelectionMatches, search, searchKeymap } from "@codemirror/search";
import { EditorState, Prec } from "@codemirror/state";
import { EditorView, crosshairCursor, drawSelection, dropCursor, highlightActiveLine, highlightActiveLineGutter, highlightSpecialChars, keymap, lineNumbers, rectangularSelection } from "@codemirror/view"; // prettier-ignore
import { completing } from "./completion.js";
import { Drafts, textToBeginWith } from "./drafts.js";
import { Meanwhile } from "./meanwhile.js";
import { LoggedOut, ask, filename, form, later, renewToken, textarea, wasGivenUp } from "./page.js";
import { Panes } from "./panes.js";
import { placesIn } from "./places.js";
import { polar } from "./polar.js";
import { Marks } from "./problems.js";
import { allTests, showTests, tellBegun, tellOutcomes, testAt, testGutter } from "./tests.js";

const WAIT = 75; // milliseconds after the last key, before the text is compiled
const BEFORE_TESTS = 700; // before its tests are run
const LONG = 1000; // milliseconds; slower tests are not run automatically
const MANY = 40; // number of tests that are likely to be slow

const BY_HAND = "These tests are slow, so they do not run automatically.";

const begun = textToBeginWith();
const before = textarea.value;

// ---- the text -------------------------------------------------------------------------------------------------------

/** Blocks and tests are folded from the brace at the end of their first line to the closing line. */
const blocks = foldService.of((state, from, to) => {
  const line = state.doc.lineAt(from);
  if (!/\{\s*(?:#.*)?$/.test(line.text)) return null;
  const indent = /^\s*/.exec(line.text)[0];
  for (let number = line.number + 1; number <= state.doc.lines; number++) {
    const { text, from: start } = state.doc.line(number);
    if (text.startsWith(`${indent}}`)) return { from: to, to: start - 1 };
    if (/^\S/.test(text) && !indent && !/^[#}]/.test(text)) return null;
  }
  return null;
});

const command = (act) => (view) => {
  act(view);
  return true;
};

const view = new EditorView({
  parent: document.getElementById("code"),
  state: EditorState.create({
    doc: begun.text,
    extensions: [
      lineNumbers(),
      testGutter((test) => runTests(test.from)),
      lintGutter(),
      foldGutter({ openText: "▾", closedText: "▸" }),
      blocks,
      highlightSpecialChars(),
      history(),
      drawSelection(),
      dropCursor(),
      EditorState.allowMultipleSelections.of(true),
      indentUnit.of("  "),
      indentOnInput(),
      polar(),
      bracketMatching(),
      closeBrackets(),
      completing,
      rectangularSelection(),
      crosshairCursor(),
      highlightActiveLine(),
      highlightActiveLineGutter(),
      highlightSelectionMatches(),
      search({ top: true }),
      Prec.high(
        keymap.of([
          { key: "Mod-Enter", run: command(() => runAtCursor()) },
          { key: "Shift-Alt-f", run: command(() => format()) },
          { key: "Mod-s", run: command(() => drafts.save()) },
          { key: "Mod-g", run: gotoLine },
        ]),
      ),
      keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap, ...completionKeymap, ...lintKeymap, indentWithTab]),
      EditorView.contentAttributes.of({
        id: "policy-text",
        tabindex: "0",
        "aria-label": "Policy source. Press Escape, then Tab, to leave the editor.",
        spellcheck: "false",
        autocapitalize: "off",
      }),
      EditorView.updateListener.of((update) => update.docChanged && changed(update.changes)),
    ],
  }),
});

const text = () => view.state.doc.toString();

/** Replace the text where the new one differs; the cursor stays at its word. */
function write(other) {
  const old = text();
  let start = 0;
  while (start < old.length && start < other.length && old[start] === other[start]) start++;
  let end = 0;
  while (end < old.length - start && end < other.length - start && old[old.length - 1 - end] === other[other.length - 1 - end]) end++;
  const at = placeOfSign(other, signsBefore(old, view.state.selection.main.head));
  view.dispatch({ changes: { from: start, to: old.length - end, insert: other.slice(start, other.length - end) }, selection: { anchor: at }, scrollIntoView: true, userEvent: "input.format" });
}

const signsBefore = (written, place) => written.slice(0, place).replace(/\s/g, "").length;

function placeOfSign(written, number) {
  let place = 0;
  for (let left = number; left > 0 && place < written.length; place++) if (/\S/.test(written[place])) left--;
  return place;
}

function jump(from, to) {
  const end = Math.min(to, view.state.doc.length);
  view.dispatch({ selection: { anchor: Math.min(from, end), head: end }, effects: EditorView.scrollIntoView(Math.min(from, end), { y: "center" }) });
  view.focus();
}

// ---- results from the server -----------------------------------------------------------------------------------------

const marks = new Marks(view, jump);
const panes = new Panes(text);
const drafts = new Drafts(text, write);
const meanwhile = new Meanwhile();
const compileSoon = later(WAIT, compile);
const testSoon = later(BEFORE_TESTS, () => runTests(null, true));
let compiling = null;
let tookLong = allTests(view.state).length > MANY;

function changed(changes) {
  marks.moved(changes);
  compileSoon();
  testSoon.cancel();
  showTestsAgain();
  drafts.changed();
}

const showTestsAgain = later(200, (note = "") =>
  showTests(view, { run: (test) => test && runTests(test.from), jump: (place) => place && jump(place.from, place.to), note }),
);

async function compile() {
  const written = text();
  compiling?.abort();
  compiling = new AbortController();
  try {
    const told = await ask(form.dataset.problems, { source: written, filename: filename.value }, compiling.signal);
    if (written !== text()) return; // outdated: a later text was sent
    marks.compiled(placed(told.problems, written), told.amounts);
    panes.compiled(Boolean(told.amounts));
    meanwhile.heard(told.active);
    if (told.amounts && !tookLong) testSoon();
  } catch (reason) {
    if (wasGivenUp(reason)) return;
    if (reason instanceof LoggedOut) drafts.notKept(reason);
    else setTimeout(compileSoon, 5000);
  }
}

function placed(found, written) {
  const places = placesIn(written);
  return found.map((each) => ({ ...each, from: places.here(each.start), to: places.here(each.end) }));
}

// ---- tests ----------------------------------------------------------------------------------------------------------

async function runTests(place = null, isByItself = false) {
  const written = text();
  const running = place === null ? allTests(view.state) : [testAt(view.state, place)].filter(Boolean);
  if (!running.length) return showTestsAgain();
  if (!isByItself) tellBegun(view, running.map((test) => test.name)); // prettier-ignore
  const start = performance.now();
  const at = place === null ? null : placesIn(written).there(running[0].from);
  let note = tookLong ? BY_HAND : "";
  try {
    const told = await ask(form.dataset.tests, { source: written, filename: filename.value, place: at });
    if (place === null) tookLong = performance.now() - start > LONG;
    note = tookLong && !told.tests?.some((test) => test.failures.length) ? BY_HAND : "";
    if (written !== text()) return;
    if (told.tests === null) note = "Tests cannot run: the policy has errors.";
    else take(told.tests, written, place === null);
  } catch (reason) {
    if (!wasGivenUp(reason)) note = `The tests were not run: ${reason.message}`;
  } finally {
    if (!isByItself) tellBegun(view, []);
    showTestsAgain(note);
  }
}

function take(tests, written, areAll) {
  const results = tests.map((test) => ({ ...test, failures: placed(test.failures, written) }));
  tellOutcomes(view, results, areAll);
  const names = new Set(results.map((test) => test.name));
  const others = areAll ? [] : marks.failures.filter((each) => !names.has(each.test));
  const failures = results.flatMap((test) => test.failures.map((each) => ({ ...each, test: test.name, severity: "failure", message: `test \`${test.name}\`: ${each.message}` })));
  marks.failed([...others, ...failures]);
}

function runAtCursor() {
  const place = view.state.selection.main.head;
  runTests(testAt(view.state, place) ? place : null);
}

// ---- toolbar ---------------------------------------------------------------------------------------------------------

async function format() {
  const written = text();
  try {
    const told = await ask(form.dataset.format, { source: written, filename: filename.value });
    if (written === text() && told.text !== written) write(told.text);
    drafts.say(told.text === written ? "Already formatted" : "Formatted");
  } catch (reason) {
    drafts.say(reason.answer?.refused ? "Not formatted: the policy has errors" : `Not formatted: ${reason.message}`);
  }
}

document.getElementById("format").addEventListener("click", format);
document.getElementById("run").addEventListener("click", () => runTests());
document.getElementById("keys").addEventListener("click", (event) => {
  const keys = document.getElementById("shortcuts");
  keys.hidden = !keys.hidden;
  event.currentTarget.setAttribute("aria-expanded", String(!keys.hidden));
});

document.addEventListener("click", (event) => {
  const link = event.target.closest("a.place[data-start]");
  if (!link) return;
  event.preventDefault();
  const places = placesIn(link.closest(".beside") ? text() : before);
  jump(...[link.dataset.start, link.dataset.end].map((place) => places.here(Number(place))));
});

form.addEventListener("submit", () => {
  textarea.value = text();
  renewToken();
  drafts.leave();
});
document.querySelector("form#drafted")?.addEventListener("submit", ({ target }) => {
  target.elements.stamp.value = form.elements.stamp.value; // of the draft as this page saved it last
});
addEventListener("beforeunload", (event) => {
  if (drafts.isLeft || !drafts.isUnsaved()) return;
  drafts.keepHere();
  if (!drafts.isHere) event.preventDefault();
});

// ---- size -----------------------------------------------------------------------------------------------------------

const desk = document.querySelector(".desk");
const content = document.getElementById("content");
const LEAST = 400; // pixels

/** Fit the text and the side panes into the height of the window that other rows leave. */
function takeRoom() {
  const { top, bottom } = desk.getBoundingClientRect();
  const below = content.getBoundingClientRect().bottom - bottom + (document.getElementById("footer")?.offsetHeight ?? 0);
  desk.style.setProperty("--desk", `${Math.max(LEAST, Math.floor(window.innerHeight - (top + window.scrollY) - below))}px`);
}

new ResizeObserver(takeRoom).observe(document.getElementById("content-main"));
addEventListener("resize", takeRoom);

// ---- start ----------------------------------------------------------------------------------------------------------

document.querySelector(".sheet").hidden = true;
document.querySelectorAll(".live").forEach((each) => (each.hidden = each.id === "shortcuts"));
document.documentElement.classList.add("writes");
document.querySelector("label[for=id_source]").hidden = true;
if (begun.kept) drafts.tellRestored(begun.kept, before);
if (begun.offered) drafts.tellOffered(begun.offered);
showTestsAgain(tookLong ? BY_HAND : "");
compile();

// For tests and browser extensions.
document.getElementById("code").editor = { view, text, write };
