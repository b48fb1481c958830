// Completion at the cursor, computed by the server (policy/language/completion.py).
import { autocompletion, insertCompletionText, pickedCompletion } from "@codemirror/autocomplete";
import { ask, form } from "./page.js";
import { placesIn } from "./places.js";

const WORTH_ASKING = /[\w@]$|"$|(?:\bon|\bmatches|\bextends|:)\s+$/u;

async function source(context) {
  const line = context.state.doc.lineAt(context.pos);
  if (!context.explicit && !WORTH_ASKING.test(line.text.slice(0, context.pos - line.from))) return null;
  const text = context.state.doc.toString();
  const places = placesIn(text);
  const giveUp = new AbortController();
  context.addEventListener("abort", () => giveUp.abort());
  let found;
  try {
    found = await ask(form.dataset.completions, { source: text, place: places.there(context.pos) }, giveUp.signal);
  } catch {
    return null; // connection errors are shown with the draft
  }
  const [from, to] = [places.here(found.start), places.here(found.end)];
  const inString = text[from - 1] === '"' && text[to] === '"';
  const options = found.options.map(({ text: label, kind, detail }, index) => {
    const apply = inString ? beyondQuote : kind === "predicate" && text[to] !== "(" ? called : undefined;
    return { label, type: kind, detail, apply, boost: -Math.min(90, index / 5) };
  });
  if (!context.explicit && options.some(({ label }) => label === text.slice(from, to)) && context.pos === to) return null;
  return { from, to, options, validFor: /^"?[\p{L}\p{N}_:@.-]*$/u };
}

/** Insert the name into the string, and move the cursor behind it. */
function beyondQuote(view, completion, from, to) {
  const { label } = completion;
  const end = view.state.sliceDoc(to, to + 1) === '"' ? to + 1 : to;
  view.dispatch({ ...insertCompletionText(view.state, `${label}"`, from, end), annotations: pickedCompletion.of(completion) });
}

/** Insert the name, and move the cursor between its parentheses. */
function called(view, completion, from, to) {
  const insert = insertCompletionText(view.state, `${completion.label}()`, from, to);
  view.dispatch({ ...insert, selection: { anchor: from + completion.label.length + 1 }, annotations: pickedCompletion.of(completion) });
}

export const completing = autocompletion({ override: [source], icons: true, maxRenderedOptions: 40, activateOnTypingDelay: 60 });
