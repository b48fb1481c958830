// Starts the language server, which does everything else, when a .polar file is opened.
const { workspace } = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = () => {
  const command = workspace.getConfiguration("authz").get("command");
  client = new LanguageClient(
    "authz",
    "Polar policies",
    { command, args: ["language_server"] },
    { documentSelector: [{ language: "polar" }] },
  );
  return client.start();
};

exports.deactivate = () => client?.stop();
