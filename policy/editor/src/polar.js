// Syntax highlighting. The kinds of words are those of policy/pages/highlight.py; a test compares them.
import { LanguageSupport, StreamLanguage, syntaxHighlighting } from "@codemirror/language";
import { Tag, tagHighlighter } from "@lezer/highlight";

const RESERVED = new Set(["if", "iff", "and", "or", "not", "in", "on", "matches", "matches!", "true", "false"]);
const CONTEXTUAL = new Set([
  "actor", "resource", "global", "extends", "declare", "type", "test", "fixture", "setup", "assert", "assert_not", "assert_never",
]); // prettier-ignore
const LISTS = new Set(["roles", "permissions", "relations"]);

const OUTSIDE = String.raw`\x00-\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\x9f\s\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb\u00ad\u200b\u2060\ufeff`;
const WORD = String.raw`[^${OUTSIDE}\p{Nd}][^${OUTSIDE}]*`;
const NAME = String.raw`${WORD}(?:::${WORD})*\??`;
const name = new RegExp(String.raw`^(?:matches!(?!=)|${NAME})`, "u");
const constant = new RegExp(`^@${NAME}`, "u");
const words = [...RESERVED].sort((a, b) => b.length - a.length).join("|");
// A contextual keyword: `resource Repo {`, `global "admin"`, `roles = [`; not `allow(actor, …`.
const named = new RegExp(String.raw`^\s+(?:"|(?!(?:${words})(?!\w))${NAME})|^\s*\{`, "u");

const KINDS = ["comment", "string", "constant", "number", "keyword", "type", "call"];
const tags = Object.fromEntries(KINDS.map((kind) => [kind, Tag.define(kind)]));
const tokens = Object.fromEntries(KINDS.map((kind) => [`polar-${kind}`, tags[kind]])); // prefixed, because some short names are reserved

const prefixed = (kind) => kind && `polar-${kind}`;

function kindOf(word, rest) {
  if (RESERVED.has(word)) return "keyword";
  if (CONTEXTUAL.has(word) && named.test(rest)) return "keyword";
  if (LISTS.has(word) && /^\s*=/.test(rest)) return "keyword";
  if (/^\p{Lu}/u.test(word)) return "type";
  return /^\s*\(/.test(rest) ? "call" : null;
}

function token(stream, state) {
  if (state.inString) return restOfString(stream, state);
  if (stream.eatSpace()) return null;
  if (stream.match(/^#.*/)) return "comment";
  if (stream.eat('"')) return restOfString(stream, state);
  if (stream.match(constant)) return "constant";
  const before = stream.pos ? stream.string[stream.pos - 1] : "";
  if (!/[\p{L}\p{N}_]/u.test(before) && stream.match(/^[+-]?[0-9]+/)) return "number";
  const found = stream.match(name);
  if (found) return kindOf(found[0], stream.string.slice(stream.pos));
  stream.next();
  return null;
}

/** Read to the closing quote, or to the end of the line, unless a backslash precedes it. */
function restOfString(stream, state) {
  stream.match(/^(?:[^"\\]|\\.)*/);
  state.inString = stream.peek() === "\\";
  if (state.inString) stream.next();
  else stream.eat('"');
  return "string";
}

const language = StreamLanguage.define({
  name: "polar",
  startState: () => ({ inString: false }),
  copyState: (state) => ({ ...state }),
  token: (stream, state) => prefixed(token(stream, state)),
  blankLine: (state) => (state.inString = false),
  tokenTable: tokens,
  indent(state, textAfter, context) {
    const line = context.lineAt(context.pos, -1);
    const before = line.text.replace(/#.*/, "");
    const opened = (before.match(/[{[(]/g) ?? []).length - (before.replace(/^[\s}\])]+/, "").match(/[}\])]/g) ?? []).length;
    const base = /^\s*/.exec(line.text)[0].length;
    const closes = /^\s*[}\])]/.test(textAfter);
    const goesOn = /\bif\s*$|\band\s*$|\bor\s*$/.test(before) && !/^\s+\S.*\b(?:and|or)\s*$/.test(before);
    return Math.max(0, base + (opened > 0 || goesOn ? context.unit : 0) - (closes ? context.unit : 0));
  },
  languageData: {
    commentTokens: { line: "#" },
    closeBrackets: { brackets: ["(", "[", "{", '"'] },
    indentOnInput: /^\s*[}\])]$/,
  },
});

const classes = tagHighlighter(KINDS.map((kind) => ({ tag: tags[kind], class: kind })));

export const polar = () => new LanguageSupport(language, [syntaxHighlighting(classes)]);
