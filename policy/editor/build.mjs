// Builds policy/static/policy/editor.js from src/ and the packages in package-lock.json:
//
//     cd policy/editor && npm ci && npm run build
//
// The first line of the output has a hash of all inputs, which a test compares.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import esbuild from "esbuild";

const HERE = new URL("./", import.meta.url);
const MADE = new URL("../static/policy/editor.js", import.meta.url);
const read = (name) => readFileSync(new URL(name, HERE), "utf8");

const sources = ["build.mjs", "package-lock.json", "package.json", ...readdirSync(new URL("src", HERE)).map((name) => `src/${name}`)];
const hash = createHash("sha256");
for (const name of sources.sort()) hash.update(`${name}\n${read(name)}`);

// The Content-Security-Policy forbids inline styles, so style-mod must use adopted style sheets, as in a shadow root.
const adopting = {
  name: "adopted style sheets",
  setup: (build) =>
    build.onLoad({ filter: /style-mod\.js$/ }, ({ path }) => {
      const text = readFileSync(path, "utf8");
      const changed = text.replace("!root.head && root.adoptedStyleSheets", "root.adoptedStyleSheets");
      if (changed === text) throw new Error("style-mod has changed: look at how it mounts styles");
      return { contents: changed, loader: "js" };
    }),
};

const built = await esbuild.build({
  entryPoints: [new URL("src/main.js", HERE).pathname],
  absWorkingDir: HERE.pathname,
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  metafile: true,
  plugins: [adopting],
  write: false,
});

const packages = new Set(
  Object.keys(built.metafile.inputs)
    .map((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1])
    .filter(Boolean),
);
const notices = [...packages].sort().map((name) => {
  const { version } = JSON.parse(read(`node_modules/${name}/package.json`));
  const [, copyright] = /^(Copyright .*)$/m.exec(read(`node_modules/${name}/LICENSE`));
  return ` * ${name} ${version}: ${copyright.replace(/ <[^>]*>/, "")}`;
});
const licence = read("node_modules/@codemirror/view/LICENSE").split("\n\n").slice(2).join("\n\n").trim();
const banner = [
  `/* sha256 of policy/editor: ${hash.digest("hex")}`,
  " * Made by policy/editor/build.mjs; change the sources there. It has these packages in it, under the MIT License:",
  " *",
  ...notices,
  " *",
  ...licence.split("\n").map((line) => ` * ${line}`.trimEnd()),
  " */",
].join("\n");
const text = `${banner}\n${built.outputFiles[0].text}`;
writeFileSync(MADE, text);
console.log(`${text.length} bytes, ${gzipSync(text).length} compressed`);
